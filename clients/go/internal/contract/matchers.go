package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// matchers compare a normal value with what a matcher wants.
var matchers = map[string]func(found, want any) bool{
	"json": func(found, want any) bool {
		text, ok := want.(string)
		var value any
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		return ok && decoder.Decode(&value) == nil && reflect.DeepEqual(found, value)
	},
	"length": func(found, want any) bool {
		number, _ := want.(json.Number)
		if text, ok := found.(string); ok {
			return fmt.Sprint(len([]rune(text))) == string(number)
		}
		return fmt.Sprint(len(list(found))) == string(number)
	},
	"contains": func(found, want any) bool {
		if text, ok := found.(string); ok {
			part, ok := want.(string)
			return ok && strings.Contains(text, part)
		}
		return has(list(found), want)
	},
	"without": func(found, want any) bool {
		return len(list(found)) > 0 && !slices.ContainsFunc(list(want), func(one any) bool { return has(list(found), one) })
	},
	"set": func(found, want any) bool {
		left := slices.Clone(list(found))
		for _, one := range list(want) {
			index := slices.IndexFunc(left, func(other any) bool { return equal(one, other) })
			if index < 0 {
				return false
			}
			left = slices.Delete(left, index, index+1)
		}
		return len(left) == 0 && isList(found)
	},
	"counting_from": func(found, want any) bool {
		first, err := want.(json.Number).Int64()
		for index, one := range list(found) {
			if one != json.Number(fmt.Sprint(first+int64(index))) {
				return false
			}
		}
		return err == nil && len(list(found)) > 0
	},
	"unique": func(found, _ any) bool {
		for index, one := range list(found) {
			if has(list(found)[index+1:], one) {
				return false
			}
		}
		return len(list(found)) > 0
	},
	"one_of": func(found, want any) bool { return has(list(want), found) },
	"not":    func(found, want any) bool { return !equal(found, want) },
	"at_least": func(found, want any) bool {
		number, isNumber := found.(json.Number)
		least, _ := want.(json.Number)
		one, err := number.Float64()
		other, otherErr := least.Float64()
		return isNumber && err == nil && otherErr == nil && one >= other
	},
}

func list(value any) []any {
	found, _ := value.([]any)
	return found
}

func isList(value any) bool {
	_, ok := value.([]any)
	return ok
}

func has(values []any, one any) bool {
	return slices.ContainsFunc(values, func(other any) bool { return equal(one, other) })
}

func equal(one, other any) bool { return reflect.DeepEqual(one, other) }

// normal returns a value as JSON has it, with numbers as they are written.
func normal(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		return value
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var made any
	if decoder.Decode(&made) != nil {
		return value
	}
	return made
}

func short(value any) string {
	text := []rune(fmt.Sprintf("%#v", value))
	if len(text) > 300 {
		return string(text[:297]) + "…"
	}
	return string(text)
}
