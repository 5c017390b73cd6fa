package belayyaml

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	found, err := Parse([]byte("a: &a [on, yes, 12:30, 2001-01-01, 017, 0o17, 0x1F, +5, 9223372036854775808, 1.5, .5e1, ~, , true, 'true', !!str 7]\nb: *a\non: {1: |\n  x\n}\n"))
	if err == nil {
		t.Fatal("a block within a flow was read", found)
	}
	found, err = Parse([]byte("a: &a [on, yes, 12:30, 2001-01-01, 017, 0o17, 0x1F, +5, 9223372036854775808, 1.5, .5e1, ~, true, 'true', !!str 7]\nb: *a\non: {1: <<}\n"))
	if err != nil {
		t.Fatal(err)
	}
	list := []any{
		"on", "yes", "12:30", "2001-01-01", json.Number("17"), json.Number("15"), json.Number("31"), json.Number("5"), json.Number("9223372036854775808"), 1.5, 5.0, nil,
		true, "true", "7",
	}
	if wanted := any(map[string]any{"a": list, "b": list, "on": map[string]any{"1": "<<"}}); !reflect.DeepEqual(found, wanted) {
		t.Fatalf("%#v", found)
	}
}

func TestWhatIsEndlessIsRefused(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for _, level := range "123456789" {
		one := string(level - 1)
		bomb += "a" + string(level) + ": &a" + string(level) + " [" + strings.TrimSuffix(strings.Repeat("*a"+one+", ", 10), ", ") + "]\n"
	}
	for _, text := range []string{bomb, "a: &a [*a]\n", "? [x]\n: 1\n"} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}
