// Package belayyaml lets YAML plan files name other plan files. A program imports it for that alone:
//
//	import _ "belay.dev/go/belayyaml"
//
// Without it, a YAML file whose steps name no files is sent as it is written, and needs no parser.
package belayyaml

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.dev/go"
)

func init() { belay.RegisterYAML(Parse) }

const (
	// maxNodes bounds what aliases unfold into.
	maxNodes = 1 << 17
	// maxDepth bounds the nesting, which an alias within its own anchor makes endless.
	maxDepth = 1000
)

var (
	integerPattern = regexp.MustCompile(`^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	floatPattern   = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// Parse reads YAML 1.2 into maps, lists and plain values: `on`, `yes` and `12:30` are texts, as for the server, and whole numbers keep their digits.
func Parse(text []byte) (any, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode {
		return nil, nil
	}
	left := maxNodes
	return value(document.Content[0], &left, 0)
}

func value(node *yaml.Node, left *int, depth int) (any, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, fmt.Errorf("line %d: the aliases unfold into too much", node.Line)
	}
	switch node.Kind {
	case yaml.AliasNode:
		return value(node.Alias, left, depth+1)
	case yaml.SequenceNode:
		entries := []any{}
		for _, one := range node.Content {
			entry, err := value(one, left, depth+1)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
		return entries, nil
	case yaml.MappingNode:
		members := map[string]any{}
		for index := 0; index < len(node.Content); index += 2 {
			key := node.Content[index]
			if key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: a name is not a text", key.Line)
			}
			member, err := value(node.Content[index+1], left, depth+1)
			if err != nil {
				return nil, err
			}
			members[key.Value] = member
		}
		return members, nil
	}
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 || node.Tag == "!!str" && node.Style&yaml.TaggedStyle != 0 {
		return node.Value, nil
	}
	return scalar(node.Value)
}

func scalar(text string) (any, error) {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil, nil
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	}
	if integerPattern.MatchString(text) {
		digits, base := strings.TrimPrefix(text, "+"), 10
		if strings.HasPrefix(digits, "0o") {
			digits, base = digits[2:], 8
		} else if strings.HasPrefix(digits, "0x") {
			digits, base = digits[2:], 16
		}
		number, ok := new(big.Int).SetString(digits, base)
		if !ok {
			return nil, fmt.Errorf("%q is no whole number", text)
		}
		return json.Number(number.String()), nil
	}
	if floatPattern.MatchString(text) {
		number, _, err := big.ParseFloat(text, 10, 64, big.ToNearestEven)
		if err != nil {
			return nil, err
		}
		float, _ := number.Float64()
		return float, nil
	}
	return text, nil
}
