//! Decisions of policies, parsing of policies, and their signed form.

mod answers;
mod bytes;
mod guide;
mod namespaces;
mod network;
mod properties;
mod protected;
mod refusals;
mod rules;
mod settings;
mod support;
