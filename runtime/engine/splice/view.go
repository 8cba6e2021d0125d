package splice

import "strconv"

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
	if !array(valid) {
		return nil, false
	}
	each(valid, func(v []byte) bool {
		if len(elements) >= most {
			return false
		}
		elements = append(elements, v)
		return true
	})
	return elements, true
}

// Count returns how many elements a valid array has and how many of them are integers
// without sign, fraction and exponent; ok is false for anything else than an array.
func Count(valid []byte) (elements, integers int, ok bool) {
	ok = each(valid, func(v []byte) bool {
		elements++
		if digits(v, 0) == len(v) {
			integers++
		}
		return true
	})
	return elements, integers, ok
}

func array(valid []byte) bool {
	i := space(valid, 0)
	return i < len(valid) && valid[i] == '['
}

// Int reads a valid JSON value as an integer; ok is false for anything else, also for a
// fraction or an exponent.
func Int(valid []byte) (n int, ok bool) {
	if len(valid) == 0 || len(valid) > 20 {
		return 0, false
	}
	n, err := strconv.Atoi(string(valid))
	return n, err == nil
}

// Bool reads a valid JSON value as true or false; ok is false for anything else.
func Bool(valid []byte) (v, ok bool) {
	v = string(valid) == "true"
	return v, v || string(valid) == "false"
}

// Ints reads a valid array of integers; ok is false for anything else.
func Ints(valid []byte) (out []int, ok bool) {
	ok = each(valid, func(v []byte) bool {
		n, is := Int(v)
		out = append(out, n)
		return is
	})
	return out, ok
}

// Rows reads a valid array of arrays of integers; ok is false for anything else.
func Rows(valid []byte) (out [][]int, ok bool) {
	out = [][]int{}
	ok = each(valid, func(v []byte) bool {
		row, is := Ints(v)
		out = append(out, row)
		return is
	})
	return out, ok
}

// each hands over the elements of a valid array while take agrees, and reports whether it was
// an array and take agreed to all.
func each(valid []byte, take func(element []byte) bool) bool {
	if !array(valid) {
		return false
	}
	i := space(valid, space(valid, 0)+1)
	for valid[i] != ']' {
		end := value(valid, i)
		if !take(valid[i:end]) {
			return false
		}
		i = space(valid, end)
		if valid[i] == ',' {
			i = space(valid, i+1)
		}
	}
	return true
}
