package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// FormatArrivals writes arrivals in the form that traces are read in, with two columns
// more for families.
func FormatArrivals(arrivals []Arrival) []byte {
	var b bytes.Buffer
	b.WriteString("at_s,input,output,class,family,prefix\n")
	for _, a := range arrivals {
		fmt.Fprintf(&b, "%s,%d,%d,%s,%d,%d\n", strconv.FormatFloat(a.At.Seconds(), 'f', 6, 64), a.Input, a.Output, field(a.Class), a.Family, a.Prefix)
	}
	return b.Bytes()
}

// field quotes a class that would break a row.
func field(s string) string {
	if !bytes.ContainsAny([]byte(s), ",\"\r\n") {
		return s
	}
	return `"` + string(bytes.ReplaceAll([]byte(s), []byte(`"`), []byte(`""`))) + `"`
}

// offersDigest names what is offered: requests at their times.
func offersDigest(table []byte) string {
	sum := sha256.Sum256(table)
	return hex.EncodeToString(sum[:])
}
