//! How big a plan may be. Every limit is refused with the name of the field that exceeds it.

use std::time::Duration;

/// Most steps in one plan.
pub const MAX_STEPS: usize = 10_000;

/// Most bytes of a plan: of its text, and of everything its fields hold together. Well below what one message may carry (16 MiB), so
/// that the refusal can name the field.
pub const MAX_PLAN_BYTES: usize = 4 * 1024 * 1024;

/// Most bytes of one step's arguments, written as compact JSON: the size up to which values stand inline in an event.
pub const MAX_ARGUMENT_BYTES: usize = 32 * 1024;

/// Most bytes that one step's arguments may have, written as compact JSON, once its references are resolved. A reference of a dozen
/// bytes can stand for a large output, many times over.
pub const MAX_RESOLVED_BYTES: usize = 4 * 1024 * 1024;

/// Deepest nesting of lists and objects inside one step's arguments. What reads YAML needs up to 30 KiB of stack for each level when it
/// is not optimised, and a thread has 2 MiB.
pub const MAX_DEPTH: usize = 32;

/// Most characters of a plan's or a step's id.
pub const MAX_ID_CHARS: usize = 64;

/// Most characters of a tool's name.
pub const MAX_TOOL_CHARS: usize = 128;

/// Most steps that may run at once.
pub const MAX_PARALLELISM: u32 = 256;

/// Most steps at once for the JSON form's `parallel: true`, which names no number.
pub const MAX_IMPLIED_PARALLELISM: u32 = 64;

/// Most attempts of one step.
pub const MAX_ATTEMPTS: u32 = 100;

/// Longest time-out or delay.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Most violations that one refusal lists; the last entry says how many more there are.
pub const MAX_VIOLATIONS: usize = 100;
