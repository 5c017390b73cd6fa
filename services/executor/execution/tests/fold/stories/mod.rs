//! Small plays: words in, picture out.

mod approvals;
mod blobs;
mod budgets;
mod calls;
mod checks;
mod children;
mod compensation;
mod conditions;
mod controls;
mod escalation;
mod fallback;
mod for_each;
mod forking;
mod joins;
mod on_error;
mod order;
mod outputs;
mod pausing;
mod readers;
mod recovery;
mod retries;
mod retrying;
mod stopping;
mod templates;
mod unknown;
mod waits;
