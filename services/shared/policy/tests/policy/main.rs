//! What policies answer, which texts are policies, and how they are signed.

mod answers;
mod bytes;
mod guide;
mod properties;
mod protected;
mod refusals;
mod rules;
mod settings;
mod support;
