//! Signatures, and which of them are believed.

mod grants;
mod keys;
mod subjects;
mod support;
