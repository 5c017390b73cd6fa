//! Hidden texts, texts that are left alone, and that hidden ones come back.

mod fixtures;
mod formats;
mod json;
mod literals;
mod streams;
