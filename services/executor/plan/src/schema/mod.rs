//! The JSON Schema of a plan document, for editors and for programs that write plans.
//!
//! It says what the reader of documents (`document/read.rs`) accepts, as far as a schema can: references between steps, cycles, templates and
//! expressions are beyond it. `tests/plans` compares the two, field by field and limit by limit.

mod parts;
mod step;

use serde_json::{Value, json};

use crate::{
    AuditLevel,
    limits::{
        MAX_ALLOWED_COMMANDS, MAX_ARGUMENT_BYTES, MAX_AT_ONCE, MAX_ATTEMPTS, MAX_DURATION, MAX_ESCALATIONS,
        MAX_EXECUTION_LIMITS, MAX_GROUP_DEPENDENCIES, MAX_ID_CHARS, MAX_IMPLIED_PARALLELISM, MAX_INPUT_BYTES,
        MAX_INPUT_CHARS, MAX_INPUTS, MAX_LABEL_BYTES, MAX_LABEL_KEY_BYTES, MAX_LABELS, MAX_LIMIT_KEY_CHARS,
        MAX_OUTPUT_CHARS, MAX_OUTPUTS, MAX_PARALLELISM, MAX_PLAN_BYTES, MAX_PLAN_RESOURCES, MAX_PROGRAM_BYTES,
        MAX_RESOURCE_CHARS, MAX_SCHEMA_BYTES, MAX_STEPS, MAX_TURNS,
    },
};
use parts::{absent, budget, duration, id, network, object, optional, present};

/// The JSON Schema (draft 2020-12) of a plan document, in YAML or in JSON.
pub fn schema() -> Value {
    let step = step::step();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A plan for Belay",
        "description": format!("A plan of at most {MAX_PLAN_BYTES} bytes, or a plan with its context and settings around it."),
        "if": {"type": "object", "required": ["plan"], "not": {"required": ["steps"]}},
        "then": {"$ref": "#/$defs/request"},
        "else": {"$ref": "#/$defs/any_plan"},
        "$defs": {
            "any_plan": {
                "if": {
                    "type": "object",
                    "not": {"required": ["steps"]},
                    "anyOf": [{"required": ["tasks"]}, {"required": ["Tasks"]}],
                },
                "then": {"$ref": "#/$defs/task_plan"},
                "else": {
                    "if": {
                        "type": "object",
                        "anyOf": [{"required": ["plan_id"]}, {"required": ["planId"]}, {"required": ["task_id"]}],
                    },
                    "then": {"$ref": "#/$defs/agent_plan"},
                    "else": {"$ref": "#/$defs/plan"},
                },
            },
            "task_plan": task_plan(),
            "agent_plan": agent_plan(),
            "plan": plan(),
            "request": request(),
            "call": step::call(&step),
            "check": step::check(&step),
            "group": step::group(&step, &steps()),
            "entry": {
                "if": {"type": "object", "required": ["steps"], "not": {"required": ["plan"]}},
                "then": {"$ref": "#/$defs/group"},
                "else": {"$ref": "#/$defs/step"},
            },
            "step": step,
            "retry": step::retry(),
            "on_error": step::on_error(),
            "wait": step::wait(),
            "agent": step::agent(),
            "form": step::form(),
            "input": input(),
        },
    })
}

fn steps() -> Value {
    json!({
        "description": format!("What to do: steps, and groups of steps, which stand for at most {MAX_GROUP_DEPENDENCIES} dependencies."),
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_STEPS,
        "items": {"$ref": "#/$defs/entry"},
        "anyOf": [{"items": present("order")}, {"items": absent("order")}],
    })
}

fn plan() -> Value {
    let steps = steps();
    let retry = step::retry();
    let memory = optional(json!({
        "description": "The working memory that the execution begins with, which templates read as `${inputs.memory.NAME}`: an input of this name.",
        "type": "object",
    }));
    let fields = json!({
        "id": id("The author's name for the plan.", MAX_ID_CHARS),
        "description": optional(json!({"type": "string", "description": "The purpose of the plan, for people."})),
        "steps": steps,
        "parallelism": optional(json!({
            "description": "How many steps may run at once; 1 runs them one by one.",
            "type": "integer", "minimum": 1, "maximum": MAX_PARALLELISM, "default": 1,
        })),
        "stop_on_error": optional(json!({
            "description": "Whether the first failed step stops the execution.", "type": "boolean", "default": false,
        })),
        "timeout": optional(duration("The longest time for the whole execution.")),
        "inputs": optional(json!({
            "description": "The values that an execution is started with, by their names.",
            "type": "object",
            "maxProperties": MAX_INPUTS,
            "propertyNames": {"pattern": "^[A-Za-z0-9_-]+$", "maxLength": MAX_INPUT_CHARS},
            "additionalProperties": {"anyOf": [{"$ref": "#/$defs/input"}, {"type": "null"}]},
        })),
        "outputs": optional(json!({
            "description": format!(
                "The result of an execution, and of the step that carries out the plan: values by their names, in which templates name what steps returned. At most {MAX_ARGUMENT_BYTES} bytes as JSON."
            ),
            "type": "object",
            "maxProperties": MAX_OUTPUTS,
            "propertyNames": {"pattern": "^[A-Za-z0-9_-]+$", "maxLength": MAX_OUTPUT_CHARS},
            "additionalProperties": {"not": {"type": "null"}},
        })),
        "retry_defaults": optional(json!({
            "description": "How often steps are tried that say nothing of it themselves, by the tool that they call, or `plan` for those with a plan of their own.",
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/retry"},
        })),
        "on_error": {"anyOf": [{"$ref": "#/$defs/on_error"}, {"type": "null"}]},
        "escalation": optional(json!({
            "description": "The reaction when steps have failed, after all attempts of their own, and everything else has ended; by default the execution ends.",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "retries": optional(json!({
                    "description": "How often failed steps run again, with all steps that depend on them.",
                    "type": "integer", "minimum": 0, "maximum": MAX_ESCALATIONS, "default": 0,
                })),
                "backoff": retry["properties"]["backoff"],
                "then": optional(json!({
                    "description": "Whether the execution then ends, or is paused until a person resumes it.",
                    "enum": ["fail", "pause"], "default": "fail",
                })),
            },
            "anyOf": [
                {"required": ["retries"], "properties": {"retries": {"type": "integer", "minimum": 1}}},
                {"required": ["then"], "properties": {"then": {"const": "pause"}}},
            ],
        })),
        "limits": optional(execution_limits()),
        "resources": optional(json!({
            "description": "How many steps may use each resource at the same time; one at a time where it is missing.",
            "type": "object",
            "maxProperties": MAX_PLAN_RESOURCES,
            "propertyNames": {"minLength": 1, "maxLength": MAX_RESOURCE_CHARS, "pattern": step::VISIBLE},
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_PARALLELISM},
        })),
        "budget": budget("The most that the calls of all its steps may use, those of their plans included; what undoes steps is not counted."),
        "memory": memory.clone(),
        "working_memory": memory,
        "audit_level": audit_level("How much of the audit log is listed when nothing else is asked for. Everything is recorded."),
        "allowed_commands": allowed_commands("The programs that commands may start, of those that the policy allows; all of these by default."),
        "network": network("The network profile of steps that name none, where they run a command or make requests, such as `registries`."),
        "labels": optional(json!({
            "description": "Labels of its executions, beside those that a start gives.",
            "type": "object",
            "maxProperties": MAX_LABELS,
            "propertyNames": {"minLength": 1, "maxLength": MAX_LABEL_KEY_BYTES},
            "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_BYTES},
        })),
        "dry_run": optional(json!({"description": "Whether a start of it only says what would happen.", "type": "boolean", "default": false})),
        "metadata": {"description": "Anything about the plan's origin: `createdBy`, `createdAt` and `confidence` become labels, the rest is ignored."},
    });
    let memory_once = [present("memory"), present("working_memory")];
    let memory_is_declared = json!({"required": ["inputs"], "properties": {"inputs": {"required": ["memory"]}}});
    let one_memory = json!({"oneOf": [
        {"not": {"anyOf": [memory_once[0], memory_once[1]]}},
        {"allOf": [memory_once[0], {"not": memory_once[1]}, {"not": memory_is_declared}]},
        {"allOf": [memory_once[1], {"not": memory_once[0]}, {"not": memory_is_declared}]},
    ]});
    object(fields, json!({"required": ["id", "steps"], "allOf": [one_memory]}))
}

/// The limits that executions of a plan share with others.
fn execution_limits() -> Value {
    let count = |description: &str| json!({"description": description, "type": "integer", "minimum": 1, "maximum": MAX_AT_ONCE});
    json!({
        "description": "The limits that its executions share with all executions of the namespace that have the same key.",
        "type": "array",
        "maxItems": MAX_EXECUTION_LIMITS,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["key"],
            "properties": {
                "key": {
                    "description": format!(
                        "The key, in which templates name inputs: `deploy-${{inputs.environment}}`. With them resolved it has at most {MAX_LIMIT_KEY_CHARS} characters."
                    ),
                    "type": "string", "minLength": 1,
                },
                "at_once": optional(count("How many executions hold the limit at once, from their start to their end.")),
                "rate": optional(json!({
                    "description": "How many executions start in a window of time.",
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["starts", "window"],
                    "properties": {
                        "starts": count("The most starts in any window of this length."),
                        "window": duration("The length of the window: at most 744h."),
                    },
                })),
                "when_full": optional(json!({
                    "description": "What becomes of an execution that finds it full: it waits for its turn, has the older ones cancelled, or is not started.",
                    "enum": ["wait", "cancel_older", "refuse"], "default": "wait",
                })),
            },
            "oneOf": [present("at_once"), present("rate")],
            "not": {"allOf": [present("rate"), {"properties": {"when_full": {"const": "cancel_older"}}, "required": ["when_full"]}]},
        },
    })
}

/// The plan of an executor stage, in either case of its names.
fn task_plan() -> Value {
    json!({
        "description": "A task plan of an executor stage: tasks with steps, and a graph of dependencies. Each step has its parameters, or was completed before.",
        "type": "object",
        "properties": {
            "tasks": {"type": "array", "items": {"type": "object"}},
            "Tasks": {"type": "array", "items": {"type": "object"}},
            "goal": optional(json!({"description": "The purpose of the plan.", "type": "string"})),
            "dependencies": {"description": "By the id of a task or step, the ids on which it depends; or edges, {from, to}."},
        },
    })
}

/// The plan of an executor agent.
fn agent_plan() -> Value {
    let seconds =
        json!({"description": "A length of time, or a number of seconds.", "type": ["string", "integer", "null"]});
    json!({
        "description": "A plan of an executor agent, whose time limits are numbers of seconds: 300 for an attempt of a step by default, and three attempts.",
        "type": "object",
        "required": ["steps"],
        "properties": {
            "plan_id": optional(json!({"description": "The same as `id`.", "type": "string"})),
            "planId": optional(json!({"description": "The same as `id`.", "type": "string"})),
            "task_id": optional(json!({"description": "The task: a label, and the id of a plan that has none.", "type": "string"})),
            "timeout": seconds,
            "steps": {"type": "array", "items": {"type": "object", "properties": {"timeout": seconds}}},
        },
    })
}

fn input() -> Value {
    let fields = json!({
        "description": optional(json!({"description": "A description for people.", "type": "string"})),
        "schema": optional(json!({
            "description": format!("The JSON Schema of the value: at most {MAX_SCHEMA_BYTES} bytes as JSON."), "type": "object",
        })),
        "default": {
            "description": format!(
                "The value of an execution that is started without one, which is required where there is no default: at most {MAX_INPUT_BYTES} bytes as JSON."
            ),
        },
    });
    object(fields, json!({"description": "A value that an execution is started with."}))
}

fn allowed_commands(description: &str) -> Value {
    let name = json!({"type": "string", "minLength": 1, "maxLength": MAX_PROGRAM_BYTES, "pattern": "^[^/ *?$\\u0000-\\u001f\\u007f-\\u009f]+$"});
    optional(json!({"description": description, "type": "array", "maxItems": MAX_ALLOWED_COMMANDS, "items": name}))
}

fn audit_level(description: &str) -> Value {
    let words: Vec<Value> = AuditLevel::WORDS.iter().map(|(word, _)| (*word).into()).chain([Value::Null]).collect();
    json!({"description": description, "enum": words})
}

/// A plan with the fields around it that other planners write.
fn request() -> Value {
    let most_millis = u64::try_from(MAX_DURATION.as_millis()).unwrap_or(u64::MAX);
    let config = json!({
        "timeout": optional(json!({
            "description": "The longest time for the whole execution, in milliseconds.",
            "type": "integer", "minimum": 1, "maximum": most_millis,
        })),
        "stopOnError": optional(json!({"description": "The plan's `stop_on_error`.", "type": "boolean"})),
        "parallel": optional(json!({
            "description": format!("Whether as many steps may run at once as there are, at most {MAX_IMPLIED_PARALLELISM}."),
            "type": "boolean",
        })),
        "dryRun": optional(json!({"description": "The plan's `dry_run`.", "type": "boolean"})),
        "auditLevel": audit_level("The plan's `audit_level`."),
        "retry_count": optional(json!({
            "description": "How often a step that has no `retry` of its own is tried again; 3 beside `retry_backoff_base_ms` alone.",
            "type": "integer", "minimum": 0, "maximum": MAX_ATTEMPTS - 1,
        })),
        "retry_backoff_base_ms": optional(json!({
            "description": "The delay before the first of these retries, which doubles before each further one, in milliseconds; 1000 beside `retry_count` alone.",
            "type": "integer", "minimum": 0, "maximum": most_millis,
        })),
        "step_timeout_seconds": optional(json!({
            "description": "The `timeout` of a step that has none of its own, in seconds.",
            "type": "integer", "minimum": 1, "maximum": MAX_DURATION.as_secs(),
        })),
        "mode": optional(json!({
            "description": format!(
                "`burst` is for many short steps: as many run at once as there are, at most {MAX_IMPLIED_PARALLELISM}, and each has a `timeout` of 30 s, where nothing else is said."
            ),
            "enum": ["normal", "burst"],
        })),
        "workspace_only": {
            "description": "The tools of a plan are confined to its workspace in any case.",
            "enum": [true, null],
        },
        "allowed_commands": allowed_commands("The plan's `allowed_commands`."),
        "model": optional(json!({
            "description": "The model of steps that a model carries out and that name none.",
            "type": "string",
        })),
        "max_turns_per_step": optional(json!({
            "description": "How often the model of a step is asked at most, of steps that do not say so.",
            "type": "integer", "minimum": 1, "maximum": MAX_TURNS,
        })),
        "token_budget_percent": optional(json!({
            "description": "How many percent of its model's window a prompt may have before older results are archived, of steps that do not say so.",
            "type": "integer", "minimum": 1, "maximum": 100,
        })),
    });
    let fields = json!({
        "plan": {"$ref": "#/$defs/any_plan"},
        "config": optional(object(config, json!({"description": "Settings beside the plan."}))),
        "context": optional(json!({
            "description": "The user, session and environment of the plan: templates read it as `${context.NAME}`; `traceId`, `userId`, `sessionId` and `environment` become labels.",
            "type": "object",
            "properties": {"environment": {"enum": ["development", "staging", "production", null]}},
        })),
    });
    let once = |setting: &str, field: &str| {
        json!({"not": {
            "required": ["config"],
            "properties": {"config": {"type": "object", "allOf": [present(setting)]}, "plan": {"type": "object", "allOf": [present(field)]}},
        }})
    };
    let rules = json!({
        "description": "A plan with its context and settings, as other planners write it.",
        "required": ["plan"],
        "allOf": [once("timeout", "timeout"), once("stopOnError", "stop_on_error"), once("parallel", "parallelism"), once("auditLevel", "audit_level"), once("allowed_commands", "allowed_commands")],
    });
    object(fields, rules)
}
