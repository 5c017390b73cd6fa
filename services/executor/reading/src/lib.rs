//! Views that readers need of an execution's events: its artifacts, audit log, calls of tools and progress, the index of its events, why it is in its
//! state, the timeline of its steps, and how it differs from another.
//!
//! Everything here is pure: it takes events one after the other, and yields plain values. What these are in the contract, and which of their secrets are
//! hidden, is decided where they are shown.
//!
//! | to find | look in |
//! |---|---|
//! | what an execution has produced, and what it derives from | [`artifacts`] |
//! | what the audit log says of an event, and at which level | [`audit`] |
//! | what differs between two executions | [`comparison`] |
//! | why an execution has not ended, or how it came to its end | [`explanation`] |
//! | which events a page of artifacts or calls needs | [`event_index`] |
//! | what events mean for metrics, the log and webhooks | [`progress`] |
//! | what each step did when | [`timeline`] |
//! | which calls of tools were made, and how they ended | [`tool_calls`] |

pub mod artifacts;
pub mod audit;
pub mod comparison;
pub mod event_index;
pub mod explanation;
pub mod progress;
pub mod timeline;
pub mod tool_calls;
