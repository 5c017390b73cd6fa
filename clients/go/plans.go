package belay

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"belay.dev/go/belayv1"
)

const (
	// maxPlanBytes is the size of the largest plan document.
	maxPlanBytes = 4 << 20
	// maxNestedFiles is how deep plans may be nested in files.
	maxNestedFiles = 5
)

// toDocument returns a plan as the document that is sent. A YAML file is sent as it is written, so that violations have its lines.
func toDocument(plan any) (*belayv1.PlanDocument, error) {
	switch one := plan.(type) {
	case string:
		return fileDocument(one)
	case []byte:
		return nil, usage("plan", "`plan` is bytes: give the path of a file, a map, or json.RawMessage.")
	case json.RawMessage, *Plan:
	default:
		kind := reflect.TypeOf(plan)
		for kind != nil && kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if kind == nil || kind.Kind() != reflect.Map && kind.Kind() != reflect.Struct {
			return nil, usage("plan", "`plan` is a %T: give a map, a struct, a *belay.Plan, json.RawMessage, or the path of a YAML or JSON file.", plan)
		}
	}
	text, err := toJSON(plan, "plan")
	if err != nil {
		return nil, err
	}
	return checkedDocument(belayv1.PlanFormat_PLAN_FORMAT_JSON, text)
}

func checkedDocument(format belayv1.PlanFormat, text string) (*belayv1.PlanDocument, error) {
	if len(text) > maxPlanBytes {
		return nil, usageFor("PLAN_TOO_LARGE", "plan",
			"`plan` has %d bytes, and at most %d are allowed: put large content into files or inputs.", len(text), maxPlanBytes)
	}
	return &belayv1.PlanDocument{Format: format, Text: text}, nil
}

func fileDocument(path string) (*belayv1.PlanDocument, error) {
	if strings.Contains(path, "\n") || strings.HasPrefix(strings.TrimSpace(path), "{") {
		return nil, usage("plan", "`plan` is the text of a plan: give its path, or the text as json.RawMessage.")
	}
	text, err := readPlan(path)
	if err != nil {
		return nil, err
	}
	if namesFiles(text, path) {
		data, err := parsePlan(text, path)
		if err != nil {
			return nil, err
		}
		if hasFiles(data) {
			resolved := resolvePath(path)
			root := filepath.Dir(resolved)
			if err := insertFiles(data, root, root, []string{resolved}); err != nil {
				return nil, err
			}
			inserted, err := toJSON(data, "plan")
			if err != nil {
				return nil, err
			}
			return checkedDocument(belayv1.PlanFormat_PLAN_FORMAT_JSON, inserted)
		}
	}
	if isJSON(path) {
		return checkedDocument(belayv1.PlanFormat_PLAN_FORMAT_JSON, text)
	}
	return checkedDocument(belayv1.PlanFormat_PLAN_FORMAT_YAML, text)
}

func readPlan(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil && !utf8.Valid(text) {
		err = errors.New("it is not UTF-8")
	}
	if err != nil {
		return "", usageFor("PLAN_UNREADABLE", "plan", "The plan's file `%s` cannot be read: %w.", path, err)
	}
	return string(text), nil
}

func isJSON(path string) bool { return strings.EqualFold(filepath.Ext(path), ".json") }

var namesFilePattern = regexp.MustCompile(`\bplan["']?\s*:\s*[^\s{\[]`)

// namesFiles reports whether a step may name a file: a quick look, so that most YAML files need no parser here.
func namesFiles(text, path string) bool { return isJSON(path) || namesFilePattern.MatchString(text) }

var yamlParser atomic.Pointer[func([]byte) (any, error)]

// RegisterYAML gives the parser that reads YAML plan files whose steps name other files. Importing belay.dev/go/belayyaml calls it, and nothing else needs to.
func RegisterYAML(parse func(text []byte) (any, error)) { yamlParser.Store(&parse) }

// parsePlan returns the data of a plan's file; nil when it cannot be read, because the server says what is wrong with the text, with line and column.
func parsePlan(text, path string) (any, error) {
	var data any
	if isJSON(path) {
		if decodeJSON([]byte(text), &data) != nil {
			return nil, nil
		}
		return data, nil
	}
	parse := yamlParser.Load()
	if parse == nil {
		return nil, usageFor("PLAN_UNREADABLE", "plan",
			"The plan's file `%s` names other files, and reading it needs a YAML parser: import _ \"belay.dev/go/belayyaml\".", path)
	}
	data, err := (*parse)([]byte(text))
	if err != nil {
		return nil, nil
	}
	return data, nil
}

// stepsOf returns every step of a plan, also those in groups.
func stepsOf(plan any) []map[string]any {
	document, _ := plan.(map[string]any)
	pending, _ := document["steps"].([]any)
	pending = slices.Clone(pending)
	var found []map[string]any
	for len(pending) > 0 {
		step, ok := pending[len(pending)-1].(map[string]any)
		pending = pending[:len(pending)-1]
		if ok {
			found = append(found, step)
			inner, _ := step["steps"].([]any)
			pending = append(pending, inner...)
		}
	}
	return found
}

func hasFiles(plan any) bool {
	return slices.ContainsFunc(stepsOf(plan), func(step map[string]any) bool {
		_, isName := step["plan"].(string)
		return isName || hasFiles(step["plan"])
	})
}

// insertFiles puts the plans of files in the place of their names. They lie in the folder of the outermost plan or below it.
func insertFiles(plan any, folder, root string, chain []string) error {
	for _, step := range stepsOf(plan) {
		name, isName := step["plan"].(string)
		if !isName {
			if err := insertFiles(step["plan"], folder, root, chain); err != nil {
				return err
			}
			continue
		}
		path := resolvePath(filepath.Join(folder, name))
		refuse := func(problem string, arguments ...any) error {
			arguments = append([]any{step["id"], chain[len(chain)-1], name}, arguments...)
			return usageFor("PLAN_REFUSED", "plan", "The step `%v` of `%s` names the file `%s`, "+problem, arguments...)
		}
		below, err := filepath.Rel(root, path)
		switch {
		case filepath.IsAbs(name) || err != nil || below == ".." || strings.HasPrefix(below, ".."+string(filepath.Separator)):
			return refuse("which is not in the folder of the outermost plan, %s.", root)
		case slices.Contains(chain, path):
			return refuse("which contains itself: %s.", strings.Join(append(slices.Clone(chain), path), " → "))
		case len(chain) > maxNestedFiles:
			return refuse("and plans are nested %d deep at most.", maxNestedFiles)
		}
		text, err := readPlan(path)
		if err != nil {
			return err
		}
		data, err := parsePlan(text, path)
		if err != nil {
			return err
		}
		if _, ok := data.(map[string]any); !ok {
			return refuse("which is no plan.")
		}
		if err := insertFiles(data, filepath.Dir(path), root, append(slices.Clone(chain), path)); err != nil {
			return err
		}
		step["plan"] = data
	}
	return nil
}

// resolvePath returns the absolute path without links; of what does not exist, as far as that goes.
func resolvePath(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
		return resolved
	}
	if resolved, err := filepath.EvalSymlinks(filepath.Dir(absolute)); err == nil {
		return filepath.Join(resolved, filepath.Base(absolute))
	}
	return absolute
}

// Fields are fields of a plan, a step or an input by the names of docs/user-guide/plans.md.
type Fields map[string]any

// Plan builds a plan. It is sugar over data, and never required: every field of docs/user-guide/plans.md can be given by its name, and none is checked here,
// because the server checks the plan. One goroutine builds it.
//
//	plan := belay.NewPlan("release", belay.Fields{"parallelism": 2})
//	build := plan.Step("build", belay.Fields{"tool": "noop", "arguments": belay.Fields{"output": belay.Fields{"file": "a.tar"}}})
//	plan.Step("check", belay.Fields{"wait": belay.Fields{"signal": "checked"}, "depends_on": []any{build}})
//	plan.Output("file", build.Result().Field("file"))
type Plan struct {
	fields          Fields
	inputs, outputs Fields
	steps           []Fields
}

// NewPlan returns a plan with an id and further fields, and without steps.
func NewPlan(id string, fields Fields) *Plan {
	plan := &Plan{fields: Fields{}, inputs: Fields{}, outputs: Fields{}}
	maps.Copy(plan.fields, fields)
	plan.fields["id"] = id
	return plan
}

// Step adds a step and returns a reference to it, which `depends_on` and arguments of later steps take.
func (p *Plan) Step(id string, fields Fields) StepRef {
	step := Fields{}
	maps.Copy(step, fields)
	step["id"] = id
	p.steps = append(p.steps, step)
	return StepRef{id}
}

// Input declares an input (`description`, `schema`, `default`) and returns a reference to its value.
func (p *Plan) Input(name string, fields Fields) Reference {
	if fields == nil {
		fields = Fields{}
	}
	p.inputs[name] = fields
	return Reference{"inputs." + name}
}

// Output declares an output of the plan.
func (p *Plan) Output(name string, value any) { p.outputs[name] = value }

// MarshalJSON returns the plan as data, with references as texts.
func (p *Plan) MarshalJSON() ([]byte, error) {
	document := maps.Clone(p.fields)
	document["steps"] = append([]Fields{}, p.steps...)
	if len(p.inputs) > 0 {
		document["inputs"] = p.inputs
	}
	if len(p.outputs) > 0 {
		document["outputs"] = p.outputs
	}
	return json.Marshal(document)
}

// StepRef is a step that was added to a plan.
type StepRef struct{ id string }

// ID returns the id of the step.
func (s StepRef) ID() string { return s.id }

// Result returns a reference to the step's result.
func (s StepRef) Result() Reference { return Reference{s.id + ".result"} }

// State returns a reference to the state in which the step has ended.
func (s StepRef) State() Reference { return Reference{s.id + ".state"} }

// Failure returns a reference to the step's failure.
func (s StepRef) Failure() Reference { return Reference{s.id + ".failure"} }

// MarshalText returns the id of the step.
func (s StepRef) MarshalText() ([]byte, error) { return []byte(s.id), nil }

// Reference is a reference to a value of a step or an input, which becomes the text `${…}` in a plan: alone, and the value keeps its type, or in a text, as
// in fmt.Sprintf("dist/%s.tar", version).
type Reference struct{ path string }

var identifierPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// Field returns a reference to a field of the value.
func (r Reference) Field(name string) Reference {
	if identifierPattern.MatchString(name) {
		return Reference{r.path + "." + name}
	}
	quoted, err := toJSON(name, "name")
	if err != nil {
		quoted = `""`
	}
	return Reference{r.path + "[" + quoted + "]"}
}

// Index returns a reference to an entry of a list, counted from 0.
func (r Reference) Index(index int) Reference {
	return Reference{r.path + "[" + itoa(int64(index)) + "]"}
}

// String returns the text `${…}`.
func (r Reference) String() string { return "${" + r.path + "}" }

// MarshalText returns the text `${…}`.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Literal returns a text with `${` escaped, so that nothing in it is taken for a reference.
func Literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }
