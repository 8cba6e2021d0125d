package splice

// View indexes the top-level members of an object that is known to be valid, such as a
// member of a parsed one. Anything else than an object gives an empty one.
func View(valid []byte) Object {
	var o Object
	i := space(valid, 0)
	if i < len(valid) && valid[i] == '{' {
		o.index(valid, i)
	}
	return o
}

// Elements returns the bytes of each element of an array that is known to be valid; ok is
// false for anything else than an array. It stops after most elements.
func Elements(valid []byte, most int) (elements [][]byte, ok bool) {
	i := space(valid, 0)
	if i >= len(valid) || valid[i] != '[' {
		return nil, false
	}
	i = space(valid, i+1)
	for valid[i] != ']' && len(elements) < most {
		end := value(valid, i)
		elements = append(elements, valid[i:end])
		i = space(valid, end)
		if valid[i] == ',' {
			i = space(valid, i+1)
		}
	}
	return elements, true
}

// Count returns how many elements a valid array has and how many of them are integers
// without sign, fraction and exponent; ok is false for anything else than an array.
func Count(valid []byte) (elements, integers int, ok bool) {
	i := space(valid, 0)
	if i >= len(valid) || valid[i] != '[' {
		return 0, 0, false
	}
	i = space(valid, i+1)
	for valid[i] != ']' {
		end := value(valid, i)
		elements++
		if digits(valid[:end], i) == end {
			integers++
		}
		i = space(valid, end)
		if valid[i] == ',' {
			i = space(valid, i+1)
		}
	}
	return elements, integers, true
}
