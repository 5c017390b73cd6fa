//! Conditions: expressions in CEL, the Common Expression Language, that are true or false.
//!
//! A crate of its own, because the parser has to be compiled only by what evaluates conditions. The parser is a library's; the evaluation is
//! here, because it has to end: [`evaluate`] counts the work by the sizes of the actual values, and gives up after [`MAX_STEPS`].
//!
//! The language has null, booleans, numbers, text, lists and maps, all operators, `has`, `all`, `exists`, `exists_one`, `filter` and `map`, and
//! the functions `size`, `contains`, `startsWith`, `endsWith`, `matches`, `int`, `double`, `string` and `bool`. Values are JSON: whole numbers and others compare and
//! calculate with each other, since JSON does not tell `2` from `2.0`. Bytes, timestamps, durations and messages of protobuf there are not.

mod check;
mod condition;
mod error;
mod evaluate;
mod number;

pub use condition::Condition;
pub use error::{ConditionError, MAX_BYTES, MAX_PARTS, MAX_STEPS};

#[cfg(test)]
mod tests;
