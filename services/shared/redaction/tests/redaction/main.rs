//! What is hidden, what is left alone, and that what was hidden comes back.

mod fixtures;
mod formats;
mod json;
mod literals;
mod streams;
