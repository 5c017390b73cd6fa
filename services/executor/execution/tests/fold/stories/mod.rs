//! Small plays: words in, picture out.

mod approvals;
mod order;
mod pausing;
mod recovery;
mod retries;
mod stopping;
mod templates;
mod unknown;
