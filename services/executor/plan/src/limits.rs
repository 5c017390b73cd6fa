//! The limits of plans. Errors name the field that exceeds a limit.

use std::time::Duration;

/// The maximum number of steps in a plan.
pub const MAX_STEPS: usize = 10_000;

/// The most inputs that a plan declares.
pub const MAX_INPUTS: usize = 100;

/// The longest name of an input, in characters.
pub const MAX_INPUT_CHARS: usize = 64;

/// The most bytes of all inputs together, as compact JSON.
pub const MAX_INPUT_BYTES: usize = 256 * 1024;

/// The most outputs that a plan declares.
pub const MAX_OUTPUTS: usize = 100;

/// The longest name of an output, in characters.
pub const MAX_OUTPUT_CHARS: usize = 64;

/// The maximum size of a plan in bytes: of its text, and of all its fields together. Well below the limit of one message (16 MiB), so that the
/// error can name the field.
pub const MAX_PLAN_BYTES: usize = 4 * 1024 * 1024;

/// The maximum size of one step's arguments, and of a plan's outputs, in bytes, as compact JSON: the size up to which values are inline in an event.
pub const MAX_ARGUMENT_BYTES: usize = 32 * 1024;

/// The maximum size of one step's arguments, and of a plan's outputs, in bytes, as compact JSON, with references resolved. A reference of a dozen bytes can insert a large
/// output, many times.
pub const MAX_RESOLVED_BYTES: usize = 4 * 1024 * 1024;

/// The maximum nesting of lists and objects in one step's arguments. The YAML parser needs up to 30 KiB of stack for each level in a debug
/// build, and a thread has 2 MiB.
pub const MAX_DEPTH: usize = 32;

/// The maximum length of a plan's id, in characters.
pub const MAX_ID_CHARS: usize = 64;

/// The maximum length of a step's id, in characters.
pub const MAX_STEP_ID_CHARS: usize = 128;

/// The maximum length of a signal's name, in characters.
pub const MAX_SIGNAL_CHARS: usize = 128;

/// The maximum length of a form's title, in characters, as it is written and with its templates resolved.
pub const MAX_FORM_TITLE_CHARS: usize = 200;

/// The maximum length of a form's description, in characters, as it is written and with its templates resolved.
pub const MAX_FORM_DESCRIPTION_CHARS: usize = 8_000;

/// The maximum size of a form's schema in bytes, as compact JSON.
pub const MAX_SCHEMA_BYTES: usize = 32 * 1024;

/// The maximum size of the task of a step with `agent`, in bytes, as it is written.
pub const MAX_TASK_BYTES: usize = 256 * 1024;

/// The most turns of a model in one step.
pub const MAX_TURNS: u32 = 1_000;

/// The most models that take over from the model of a goal.
pub const MAX_FALLBACK_MODELS: usize = 8;

/// The most tools that a step offers a model. Models choose badly among many, and each is in every prompt.
pub const MAX_OFFERED_TOOLS: usize = 64;

/// The most files, and patterns for files, that a step names for its model. All files are in every prompt.
pub const MAX_FILES: usize = 32;

/// The most files that all patterns of a step together show its model.
pub const MAX_FOUND_FILES: usize = 64;

/// The most calls that a step makes side by side.
pub const MAX_CALLS: usize = 100;

/// The most rounds of one step.
pub const MAX_ROUNDS: u32 = 1_000;

/// The maximum number of entries of a list for which a step runs.
pub const MAX_ITEMS: usize = 10_000;

/// The maximum size of one entry of such a list in bytes, as compact JSON: the size up to which values are inline in an event.
pub const MAX_ITEM_BYTES: usize = 32 * 1024;

/// The maximum size of such a list in bytes, as compact JSON: it is in one event, well below the limit of one message (16 MiB).
pub const MAX_LIST_BYTES: usize = 1024 * 1024;

/// How often at most the steps that have failed run again by a plan's escalation.
pub const MAX_ESCALATIONS: u32 = 10;

/// The most resources whose capacity a plan gives.
pub const MAX_PLAN_RESOURCES: usize = 100;

/// The largest amount of a budget: calls, or bytes.
pub const MAX_BUDGET: u64 = 1_000_000_000_000_000;

/// How deep groups of steps may be nested.
pub const MAX_NESTED_GROUPS: usize = 5;

/// For how many dependencies the groups of a plan may stand in all: a thousand steps that depend on a group of a hundred.
pub const MAX_GROUP_DEPENDENCIES: usize = 100_000;

/// How deep plans may be nested: the steps of a plan may have plans of their own, and so on, this often.
pub const MAX_NESTED_PLANS: usize = 5;

/// The maximum number of other calls that a step falls back to.
pub const MAX_FALLBACKS: usize = 10;

/// The maximum length of a step's description, in characters.
pub const MAX_DESCRIPTION_CHARS: usize = 4096;

/// The maximum number of programs that a plan allows.
pub const MAX_ALLOWED_COMMANDS: usize = 500;

/// The maximum length of a program's name, in bytes: that of a file's.
pub const MAX_PROGRAM_BYTES: usize = 255;

/// The maximum number of checks before a step's call, and of those after it.
pub const MAX_CHECKS: usize = 20;

/// The maximum number of resources that one step uses.
pub const MAX_RESOURCES: usize = 20;

/// The maximum length of a resource's name, in characters.
pub const MAX_RESOURCE_CHARS: usize = 64;

/// The longest name of a network profile, in characters; that of the operator's settings.
pub const MAX_NETWORK_CHARS: usize = 64;

/// The maximum length of a condition, in bytes.
pub const MAX_CONDITION_BYTES: usize = 4096;

/// The maximum length of a tool's name, in characters.
pub const MAX_TOOL_CHARS: usize = 128;

/// The maximum number of steps that may run at once.
pub const MAX_PARALLELISM: u32 = 256;

/// The parallelism of `parallel: true` in the JSON form, which names no number.
pub const MAX_IMPLIED_PARALLELISM: u32 = 64;

/// The maximum number of attempts of one step.
pub const MAX_ATTEMPTS: u32 = 100;

/// The longest time limit or delay.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The maximum number of violations that one error lists; one more entry has the number of the others.
pub const MAX_VIOLATIONS: usize = 100;

/// The most limits over executions that a plan has.
pub const MAX_EXECUTION_LIMITS: usize = 10;

/// The longest key of a limit over executions, in characters.
pub const MAX_LIMIT_KEY_CHARS: usize = 128;

/// The most executions that a limit allows at once, or to start in its window.
pub const MAX_AT_ONCE: u32 = 1_000;

/// The longest window of a limit with a rate.
pub const MAX_RATE_WINDOW: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Maximum number of labels of an execution.
pub const MAX_LABELS: usize = 64;

/// Maximum bytes of a label's key.
pub const MAX_LABEL_KEY_BYTES: usize = 63;

/// Maximum bytes of a label's value.
pub const MAX_LABEL_BYTES: usize = 255;
