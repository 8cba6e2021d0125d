package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/narwhal-fleet/narwhal/internal/problem"
	"github.com/narwhal-fleet/narwhal/runtime/simulate"
)

// deaths reads ENGINE@FROM and ENGINE@FROM-BACK.
func deaths(words []string) (out []simulate.Unlike, err error) {
	for _, w := range words {
		var u simulate.Unlike
		number, when, _ := strings.Cut(w, "@")
		from, back, returns := strings.Cut(when, "-")
		if u.Engine, err = strconv.Atoi(number); err == nil {
			u.Dies, err = strconv.ParseFloat(from, 64)
		}
		if err == nil && returns {
			u.Back, err = strconv.ParseFloat(back, 64)
		}
		if err == nil && u.Dies <= 0 {
			err = fmt.Errorf("it ends at %v s", u.Dies)
		}
		if err != nil {
			return nil, problem.Wrap(problem.Invalid, "invalid_arguments", "read --dies "+w, err, "want ENGINE@FROM or ENGINE@FROM-BACK, in seconds above 0, for example 3@60-90")
		}
		out = append(out, u)
	}
	return out, nil
}
