//! The schema of a step.

use belay_reasons::ErrorClass;
use serde_json::{Value, json};

use super::parts::{
    absent, budget, duration, id, network, object, optional, present, present_as_any, with_other_names,
};
use crate::{
    DEFAULT_TURNS, MAX_QUEUED_ATTEMPTS, Outcome, Profile, RecoveryStrategy, RunWhen,
    document::other_names,
    limits::{
        MAX_ARGUMENT_BYTES, MAX_ATTEMPTS, MAX_CALLS, MAX_CHECKS, MAX_CONDITION_BYTES, MAX_DEPTH, MAX_DESCRIPTION_CHARS,
        MAX_DURATION, MAX_FALLBACK_MODELS, MAX_FALLBACKS, MAX_FILES, MAX_FORM_DESCRIPTION_CHARS, MAX_FORM_TITLE_CHARS,
        MAX_FOUND_FILES, MAX_ITEM_BYTES, MAX_ITEMS, MAX_LIST_BYTES, MAX_NESTED_GROUPS, MAX_NESTED_PLANS,
        MAX_OFFERED_TOOLS, MAX_RESOLVED_BYTES, MAX_RESOURCE_CHARS, MAX_RESOURCES, MAX_ROUNDS, MAX_SCHEMA_BYTES,
        MAX_SIGNAL_CHARS, MAX_STEP_ID_CHARS, MAX_TASK_BYTES, MAX_TOOL_CHARS, MAX_TURNS,
    },
    recovery::{class_named, class_names},
};

/// A name without spaces and without characters that cannot be seen.
pub(super) const VISIBLE: &str =
    "^[^\\s\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff]+$";

/// A text in which at least one character is seen, as `belay_text::is_blank` has it. The class is a part of that function's: the dialect of the patterns
/// counts U+FEFF among its spaces, and Rust does not.
const SEEN: &str =
    "[^\\s\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff]";

pub(super) fn step() -> Value {
    let texts = |description: &str| json!({"description": description, "type": "array", "items": {"type": "string"}});
    let run_when: Vec<&str> = RunWhen::WORDS.iter().map(|(word, _)| *word).collect();
    let shared = json!({
        "id": optional(id("Unique in the plan.", MAX_STEP_ID_CHARS)),
        "title": optional(json!({"type": "string", "description": "A short line for people; the id by default."})),
        "description": optional(json!({
            "type": "string", "maxLength": MAX_DESCRIPTION_CHARS,
            "description": "The purpose of the step, and the reason for it: shown to the person who decides about its calls.",
        })),
        "group": optional(json!({
            "type": "string", "maxLength": MAX_STEP_ID_CHARS,
            "description": "The group under which people see it; that in which it is written, for one that stands in a group.",
        })),
        "depends_on": optional(depends_on()),
        "run_when": optional(json!({
            "description": "After which ends of the steps that it depends on it runs.", "enum": run_when, "default": "success",
        })),
        "condition": optional(json!({
            "description": format!("An expression in CEL with references of at most {MAX_CONDITION_BYTES} bytes; the step runs only if it is true."),
            "type": ["string", "boolean"],
            "maxLength": MAX_CONDITION_BYTES,
            "pattern": "\\S",
            "examples": ["${check.result.failed} == 0"],
        })),
        "for_each": {
            "description": format!(
                "The step runs once for each entry of this list, which `${{item.value}}` and `${{item.index}}` name: at most {MAX_ITEMS}, each of at most \
                 {MAX_ITEM_BYTES} bytes as JSON and all together of {MAX_LIST_BYTES}; one reference that becomes a list; or a matrix, whose entries are all \
                 combinations of the values of its dimensions."
            ),
            "anyOf": [
                {"type": ["array", "null"], "maxItems": MAX_ITEMS},
                {"type": "string", "pattern": "^\\$\\{.+\\}$"},
                {
                    "type": "object",
                    "required": ["matrix"],
                    "additionalProperties": false,
                    "properties": {"matrix": {
                        "description": "A list of values for each dimension; `exclude` leaves combinations out, `include` adds to them or adds some.",
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {
                            "anyOf": [{"type": "array"}, {"type": "string", "pattern": "^\\$\\{.+\\}$"}],
                        },
                    }},
                },
            ],
            "examples": ["${list.result.files}", {"matrix": {"os": ["linux", "macos"], "version": [1, 2]}}],
        },
        "fail_fast": optional(json!({
            "description": "Whether no more of its entries or `calls` start once one has failed after its attempts; those that run are not stopped.",
            "type": "boolean", "default": false,
        })),
        "repeat": optional(json!({
            "description": format!(
                "The step runs again until a condition holds, each time as a step of its own, at most {MAX_ROUNDS} times; its output is that of the last round."
            ),
            "type": "object",
            "required": ["until", "max"],
            "additionalProperties": false,
            "properties": {
                "until": {
                    "description": "An expression in CEL with references, evaluated after each round: `${ID.result}` is what the step itself has returned last.",
                    "type": "string",
                    "maxLength": MAX_CONDITION_BYTES,
                    "pattern": "\\$\\{",
                    "examples": ["${poll.result.state} == 'done'"],
                },
                "max": {"description": "The most rounds.", "type": "integer", "minimum": 1, "maximum": MAX_ROUNDS},
                "delay": optional(duration("The time from the end of a round to the beginning of the next.")),
            },
        })),
        "timeout": optional(duration("The longest time for all attempts and the delays between them.")),
        "group_timeouts": {
            "description": "The time limits of groups that the step stands in, by their ids; a group's own `timeout` is given to its steps.",
            "type": "object",
            "maxProperties": MAX_NESTED_GROUPS,
            "additionalProperties": duration("From the start of the first of the group's steps."),
        },
        "fail_fast_groups": optional(json!({
            "description": "The groups with `fail_fast` that the step stands in, by their ids, the innermost first; a group's own `fail_fast` is given to its steps.",
            "type": "array",
            "maxItems": MAX_NESTED_GROUPS,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_STEP_ID_CHARS},
        })),
        "on_error": {"anyOf": [{"$ref": "#/$defs/on_error"}, {"type": "null"}]},
        "order": optional(json!({
            "description": "Its position in the plan, instead of its position in the list; all steps have it, or none.",
            "type": "integer", "minimum": 0, "maximum": u32::MAX,
        })),
    });
    let of_calls = json!({
        "fallback": optional(json!({
            "description": "Calls that take the place of the step's own, one after the other, when all attempts of the one before have failed.",
            "type": "array",
            "maxItems": MAX_FALLBACKS,
            "items": {"$ref": "#/$defs/call"},
        })),
        "compensate": {"anyOf": [{"$ref": "#/$defs/call"}, {"type": "null"}]},
        "resources": optional(json!({
            "description": "The resources that no other step may use at the same time, or no more steps than the plan's `resources` say, by names of your own.",
            "type": "array",
            "maxItems": MAX_RESOURCES,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_RESOURCE_CHARS, "pattern": VISIBLE},
        })),
        "budget": budget("The most that its calls may use, in all attempts, for all entries of its list, and of its plan."),
        "preconditions": checks("Checks before each attempt, in order. A check that does not hold fails the step, which is not retried."),
        "postconditions": checks("Checks once the call has completed, in order; `${ID.result}` may name the step itself."),
        "output_schema": optional(json!({
            "description": format!(
                "The JSON Schema that the output has to fit: at most {MAX_SCHEMA_BYTES} bytes as JSON, nested at most {MAX_DEPTH} deep, without `$ref`."
            ),
            "type": "object",
        })),
        "tool": optional(json!({
            "description": "The tool's name, or one of its aliases.",
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_TOOL_CHARS,
            "pattern": VISIBLE,
        })),
        "arguments": optional(json!({
            "description": format!(
                "The tool's arguments by name: at most {MAX_ARGUMENT_BYTES} bytes as JSON ({MAX_RESOLVED_BYTES} once its templates are \
                 filled in), nested at most {MAX_DEPTH} deep."
            ),
            "type": "object",
        })),
        "calls": optional(json!({
            "description": "Several calls instead of one, side by side; the output is the list of their results, in this order.",
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_CALLS,
            "items": {"$ref": "#/$defs/call"},
        })),
        "effects": optional(json!({
            "description": "How what several `calls`, or those of an `agent`, change becomes the workspace's: each call commits its own (per_call), or all of it is committed as \
                            one when they have completed, or not at all (per_step).",
            "type": "string",
            "enum": ["per_call", "per_step"],
            "default": "per_call",
        })),
        "attempt_timeout": optional(duration("The longest time for one attempt.")),
        "exclusive": optional(json!({
            "description": "Whether no other call commits in the workspace while this step's call runs.",
            "type": "boolean",
            "default": false,
        })),
        "network": network("The network profile of the operator's settings that the step's commands have, such as `registries`; that of the plan without it."),
        "verbatim": optional(texts("Names of arguments in which `${` means nothing.")),
        "retry": {"anyOf": [{"$ref": "#/$defs/retry"}, {"type": "null"}]},
    });
    let mut fields = shared;
    fields.as_object_mut().expect("an object").extend(of_calls.as_object().cloned().unwrap_or_default());
    let (mut fields, mut rules) = with_other_names(fields);
    fields["plan"] = json!({
        "description": format!(
            "The plan that the step carries out, as an execution of its own; at most {MAX_NESTED_PLANS} deep. A text names a file with the \
             plan, relative to the file of this one: the `belay` command puts it in place."
        ),
        "anyOf": [{"$ref": "#/$defs/plan"}, {"type": "string", "minLength": 1}, {"type": "null"}],
    });
    // The same name is one of those for the arguments of a call.
    fields["inputs"] = optional(json!({
        "description": "The values of the inputs of the step's plan, by their names; of a step that calls a tool, its arguments.",
        "type": "object",
    }));
    fields["agent"] = json!({"anyOf": [{"$ref": "#/$defs/agent"}, {"type": "null"}]});
    fields["wait"] = json!({"anyOf": [{"$ref": "#/$defs/wait"}, {"type": "null"}]});
    let no_call = |name: &str| match name {
        "exclusive" => json!({"properties": {"exclusive": {"enum": [false, null]}}}),
        "verbatim" | "fallback" | "resources" | "preconditions" | "postconditions" => {
            json!({"properties": {name: {"maxItems": 0}}})
        }
        // A plan's inputs have a name that arguments may have.
        "arguments" => {
            let names: Vec<Value> = ["arguments", "params", "parameters", "args"].map(present).into();
            json!({"not": {"anyOf": names}})
        }
        name => json!({"not": present_as_any(name)}),
    };
    let mut no_call_at_all: Vec<Value> =
        of_calls.as_object().into_iter().flatten().map(|(name, _)| no_call(name)).collect();
    no_call_at_all.extend([absent("plan"), absent("inputs"), absent("agent")]);
    rules.push(present_as_any("id"));
    // What else a step with a plan may have: it is undone, retried and kept apart like one that calls a tool.
    let shared_with_calls = ["compensate", "resources", "attempt_timeout", "retry", "budget"];
    let own = of_calls.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let no_tool = own.filter(|name| !shared_with_calls.contains(name)).map(no_call).collect::<Vec<_>>();
    let no_tool = json!({"allOf": [{"allOf": no_tool}, absent("agent")]});
    // What is for a step with one call of its own.
    let of_one_call = ["tool", "arguments", "verbatim", "fallback", "compensate"];
    let mut no_own_call: Vec<Value> = of_one_call.map(no_call).into();
    no_own_call.extend([absent("for_each"), absent("repeat"), absent("inputs")]);
    // In a step with a goal the model makes the calls.
    let of_agent = ["tool", "arguments", "calls", "verbatim", "fallback", "compensate"];
    let mut no_calls_of_its_own: Vec<Value> = of_agent.map(no_call).into();
    no_calls_of_its_own.extend([absent("for_each"), absent("repeat"), absent("inputs")]);
    rules.push(json!({
        "if": present("wait"),
        "then": {"allOf": no_call_at_all},
        "else": {
            "if": present("plan"),
            "then": no_tool,
            "else": {
                "if": present("agent"),
                "then": {"allOf": no_calls_of_its_own},
                "else": {
                    "if": present("calls"),
                    "then": {"allOf": no_own_call},
                    "else": {"allOf": [present_as_any("tool"), absent("effects")]},
                },
            },
        },
    }));
    // It is one step for each entry, or for each round.
    rules.push(json!({"if": present("repeat"), "then": absent("for_each")}));
    rules.push(json!({
        "if": {"required": ["fail_fast"], "properties": {"fail_fast": {"const": true}}},
        "then": {"anyOf": [present("for_each"), present("calls")]},
    }));
    // After which ends it runs is said in one way only.
    rules.extend(joins_once());
    // They would look at a workspace that has nothing of the step.
    rules.push(json!({
        "if": {"required": ["effects", "calls"], "properties": {"effects": {"const": "per_step"}, "calls": {"type": "array"}}},
        "then": {"allOf": [no_call("preconditions"), no_call("postconditions")]},
    }));
    let ends_by_itself = json!({"type": "object", "anyOf": [present("for"), present("until")]});
    rules.push(json!({
        "if": {"required": ["wait"], "properties": {"wait": ends_by_itself}},
        "then": absent("timeout"),
    }));
    object(
        fields,
        json!({"description": "One call of one tool, several calls, a goal that a model works towards, an execution of another plan, or a wait.", "allOf": rules}),
    )
}

/// Schema of the dependencies of a step or a group.
fn depends_on() -> Value {
    let outcomes: Vec<&str> = Outcome::WORDS.iter().map(|(word, _)| *word).collect();
    let fields = json!({
        "step": json!({"description": "The id of the step, or of a group of steps.", "type": "string", "minLength": 1}),
        "on": optional(json!({
            "description": "The outcomes with which the step may have ended; `run_when` says it where this is missing.",
            "type": "array", "minItems": 1, "items": {"enum": outcomes},
        })),
    });
    json!({
        "description": "The steps that must have ended first: ids of steps, which must have completed, or {step: ID, on: [OUTCOME]}. Steps that templates name are added.",
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, object(fields, json!({"required": ["step"]}))]},
    })
}

/// Under either of the names that `depends_on` has: no outcomes where `run_when` says something else than the default.
fn joins_once() -> impl Iterator<Item = Value> {
    let names = std::iter::once("depends_on").chain(other_names("depends_on").iter().copied());
    names.map(|name| {
        let run_when: Vec<&str> =
            RunWhen::WORDS.iter().filter(|(_, word)| *word != RunWhen::default()).map(|(word, _)| *word).collect();
        let names_outcomes = json!({"type": "array", "contains": present("on")});
        json!({"not": {
            "required": ["run_when", name],
            "properties": {"run_when": {"enum": run_when}, name: names_outcomes},
        }})
    })
}

/// A group of steps.
pub(super) fn group(step: &Value, steps: &Value) -> Value {
    let of_step = &step["properties"];
    let fields =
        ["id", "title", "description", "depends_on", "run_when", "condition", "retry", "attempt_timeout", "order"];
    let fields = fields.map(|name| (name.to_owned(), of_step[name].clone()));
    let (mut fields, mut rules) = with_other_names(Value::Object(fields.into_iter().collect()));
    fields["steps"] = steps.clone();
    fields["timeout"] =
        optional(duration("The longest time from the start of the first of its steps to the end of the last."));
    fields["fail_fast"] = optional(json!({
        "description": "Whether no more of its steps start once one of them has failed; those that run are not stopped, and those that run after a failure still do.",
        "type": "boolean", "default": false,
    }));
    rules.push(present_as_any("id"));
    rules.extend(joins_once());
    let description = format!(
        "Steps under one id, with what they share; at most {MAX_NESTED_GROUPS} deep. Its dependencies, `run_when` and `condition` are those of the steps that it \
         begins with; `retry` and `attempt_timeout`, of all that have none."
    );
    object(fields, json!({"description": description, "required": ["steps"], "allOf": rules}))
}

/// A call of a step beside its own.
pub(super) fn call(step: &Value) -> Value {
    let of_step = &step["properties"];
    let fields = ["tool", "arguments", "verbatim"].map(|name| (name.to_owned(), of_step[name].clone()));
    let (fields, mut rules) = with_other_names(Value::Object(fields.into_iter().collect()));
    rules.push(present_as_any("tool"));
    object(
        fields,
        json!({"description": "A call of a step beside its own: a fallback, or the call that undoes it.", "allOf": rules}),
    )
}

fn checks(description: &str) -> Value {
    optional(json!({
        "description": description, "type": "array", "maxItems": MAX_CHECKS, "items": {"$ref": "#/$defs/check"},
    }))
}

/// A check before or after a call.
pub(super) fn check(step: &Value) -> Value {
    let fields = json!({
        "condition": step["properties"]["condition"],
        "file": optional(json!({
            "description": "The path of a file or a directory that has to exist in the workspace.", "type": "string", "minLength": 1,
        })),
        "command": optional(json!({
            "description": "A program and its arguments, one string each, that has to end with exit code 0. No shell interprets them.",
            "type": "array",
            "items": {"type": "string"},
            "examples": [["test", "-s", "dist/app.js"]],
        })),
    });
    let judge = json!({
        "description": "What a model has to find true of the result of a step with a goal, in words.", "type": "string", "minLength": 1, "pattern": SEEN,
        "examples": ["Every risk in the notes is named in the summary, with its owner."],
    });
    let model = json!({
        "description": "The model that judges, by its name in the settings; left out for that of the step.", "type": "string", "minLength": 1,
    });
    let mut fields = fields;
    (fields["judge"], fields["model"]) = (optional(judge), optional(model));
    let some = json!({"required": ["command"], "properties": {"command": {"type": "array", "minItems": 1}}});
    let one_of = json!([present("condition"), present("file"), present("judge"), some]);
    object(fields, json!({"description": "A check: one of the fields.", "oneOf": one_of}))
}

pub(super) fn retry() -> Value {
    let most_millis = u64::try_from(MAX_DURATION.as_millis()).unwrap_or(u64::MAX);
    let max_attempts = optional(json!({
        "description": "The number of attempts, including the first.", "type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS,
    }));
    let exponential = json!({
        "initial": optional(duration("The delay before the first retry.")),
        "factor": optional(json!({
            "description": "The factor of each further delay.", "type": "number", "minimum": 1, "default": 2,
        })),
        "max": optional(duration("The longest delay.")),
    });
    let profiles: Vec<&str> = Profile::WORDS.iter().map(|(word, _)| *word).collect();
    let mut fields = json!({
        "profile": optional(json!({
            "description": "The numbers of a planner; other fields come before it.", "enum": profiles,
        })),
        "rate_limit": {
            "description": "The delays after a rate limit: `never`; `queue_for_later`, which pauses the execution until there is room again; or delays, whose last entry counts for those that are missing.",
            "anyOf": [
                {"enum": ["never", "queue_for_later", null]},
                {"type": "array", "minItems": 1, "maxItems": MAX_ATTEMPTS, "items": duration("One delay.")},
            ],
        },
        "by_output": optional(json!({
            "description": "Whether the failure of a program is classified by its exit code and by what it printed last.",
            "type": "boolean", "default": false,
        })),
        "max_attempts": max_attempts,
        "maxAttempts": max_attempts,
        "backoff": optional(json!({
            "description": "The delays one by one, or a delay that grows.",
            "type": ["array", "object"],
            "maxItems": MAX_ATTEMPTS,
            "items": duration("One delay."),
            "properties": exponential,
            "additionalProperties": false,
        })),
        "backoffMs": optional(json!({
            "description": "The delays one by one, in milliseconds.",
            "type": "array",
            "maxItems": MAX_ATTEMPTS,
            "items": {"type": "integer", "minimum": 1, "maximum": most_millis},
        })),
    });
    fields["maxAttempts"]["description"] = "The same as `max_attempts`.".into();
    let both = |one: &str, other: &str| json!({"not": {"allOf": [present(one), present(other)]}});
    let rules = json!({
        "description": "How often to retry, and after which delays.",
        "anyOf": [present("max_attempts"), present("maxAttempts"), present("backoffMs"), present("profile")],
        "allOf": [both("max_attempts", "maxAttempts"), both("backoff", "backoffMs")],
    });
    object(fields, rules)
}

/// Schema of the strategies for failures, by the class of the failure.
pub(super) fn on_error() -> Value {
    let strategies = |class: ErrorClass| {
        let words = RecoveryStrategy::WORDS.iter().filter(|(_, strategy)| strategy.is_for(class));
        let words: Vec<Value> = words.map(|(word, _)| (*word).into()).collect();
        json!({"enum": words})
    };
    let classes = class_names().filter_map(class_named).map(|class| (class.name().to_owned(), strategies(class)));
    let description = format!(
        "The strategy when a step has failed after its last attempt, by the class of the failure: `use_cache`, the last result of the same call; `queue_for_later`, which \
         pauses the execution until there is room again, for at most {MAX_QUEUED_ATTEMPTS} attempts; `compensate`, which stops the execution and undoes its steps."
    );
    object(Value::Object(classes.collect()), json!({"description": description}))
}

/// A goal that a model works towards.
pub(super) fn agent() -> Value {
    let fields = json!({
        "model": {
            "description": "The model, by its name in the settings of the executor.",
            "type": "string", "minLength": 1, "maxLength": MAX_TOOL_CHARS, "pattern": VISIBLE,
        },
        "task": {
            "description": format!(
                "What is to be achieved, in words; at most {MAX_TASK_BYTES} bytes. `{{file: NAME}}` names a text file with it, relative to the file of the \
                 plan: the `belay` command puts it in place."
            ),
            "anyOf": [
                {"type": "string", "pattern": SEEN, "maxLength": MAX_TASK_BYTES},
                object(json!({"file": {"description": "The name of the file.", "type": "string", "minLength": 1}}), json!({"required": ["file"]})),
            ],
        },
        "tools": optional(json!({
            "description": "The tools that the model may call, by their names or aliases, and groups of them: `group:reading`, `group:writing`.",
            "type": "array", "maxItems": MAX_OFFERED_TOOLS, "uniqueItems": true,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_CHARS, "pattern": VISIBLE},
        })),
        "files": optional(json!({
            "description": format!("The files that the model is shown with its task, by their paths in the workspace, or by globs such as `src/**/*.rs`, which together find {MAX_FOUND_FILES} at most."),
            "type": "array", "maxItems": MAX_FILES, "uniqueItems": true,
            "items": {"type": "string", "minLength": 1},
        })),
        "max_turns": optional(json!({
            "description": "How many times the model is asked at most.",
            "type": "integer", "minimum": 1, "maximum": MAX_TURNS, "default": DEFAULT_TURNS,
        })),
        "fallback": optional(json!({
            "description": "The models that take over, one after the other, where the one before cannot be asked any more.",
            "type": "array", "maxItems": MAX_FALLBACK_MODELS, "uniqueItems": true,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_TOOL_CHARS, "pattern": VISIBLE},
        })),
        "prompt_percent": optional(json!({
            "description": "How many percent of the model's window a prompt may have before older results are archived.",
            "type": "integer", "minimum": 1, "maximum": 100,
        })),
    });
    object(
        fields,
        json!({"description": "A goal that a model works towards with tools, turn by turn.", "required": ["model", "task"]}),
    )
}

pub(super) fn wait() -> Value {
    let fields = json!({
        "for": optional(duration("For this long.")),
        "until": optional(json!({
            "description": "Until this point in time, with its offset from UTC.",
            "type": "string",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
            "examples": ["2026-12-01T09:00:00Z", "2026-12-01T10:00:00+01:00"],
        })),
        "signal": optional(id("For a signal of this name.", MAX_SIGNAL_CHARS)),
        "form": {"anyOf": [{"$ref": "#/$defs/form"}, {"type": "null"}]},
    });
    let one_of: Vec<Value> = ["for", "until", "signal", "form"].into_iter().map(present).collect();
    object(fields, json!({"description": "The condition of the wait: one of the fields.", "oneOf": one_of}))
}

pub(super) fn form() -> Value {
    let fields = json!({
        "title": optional(json!({
            "description": "The question, in one line; the step's title by default.",
            "type": "string",
            "maxLength": MAX_FORM_TITLE_CHARS,
            "pattern": "^[^\\n\\r]*$",
        })),
        "description": optional(json!({
            "description": "The context that a person needs to answer.", "type": "string", "maxLength": MAX_FORM_DESCRIPTION_CHARS,
        })),
        "schema": {
            "description": format!(
                "The JSON Schema of the answer: at most {MAX_SCHEMA_BYTES} bytes as JSON, nested at most {MAX_DEPTH} deep, without `$ref`."
            ),
            "type": "object",
        },
    });
    object(fields, json!({"description": "A form that a person answers.", "required": ["schema"]}))
}
