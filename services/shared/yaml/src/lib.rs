//! Reads YAML files that people write, and reports all violations at once, by field and line.
//!
//! [`parse`] turns text into a tree in which every value knows its line; a [`Reader`] turns the tree into values and collects the
//! [`Violation`]s. Pure: the caller reads the file.

mod duration;
mod nearest;
mod reader;
mod shown;
mod tree;
mod violation;

pub use duration::seconds;
pub use nearest::nearest;
pub use reader::Reader;
pub use shown::shown;
pub use tree::{Bounds, Entry, Node, Value, parse};
pub use violation::Violation;
