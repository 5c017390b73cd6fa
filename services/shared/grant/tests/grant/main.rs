//! What is signed, what is believed, and what is not.

mod grants;
mod keys;
mod subjects;
mod support;
