//! A checked plan: steps with dependencies, as data.
//!
//! A plan begins as a [`PlanDraft`] (what a client sent) or as a text (what an author wrote, YAML or JSON) and becomes a [`Plan`] only
//! by passing every check that needs no tool catalogue and no JSON Schema. There is no unchecked `Plan`. The error is an [`InvalidPlan`], with every invalid field
//! by the name that its author used.
//!
//! This crate is pure: no clocks, files, sockets or tools. A caller that knows the tools and JSON Schema passes a function that checks each call
//! and each form ([`Plan::parse_with`]), so that one error has all violations.

mod budget;
mod check;
mod command_line;
mod derived_id;
mod document;
mod draft;
mod duration;
mod error;
mod escalation;
mod kinds;
mod limit;
pub mod limits;
mod matrix;
mod nearest;
mod path;
mod plan;
mod recovery;
mod repeat;
mod retry;
mod schema;
mod template;
mod timestamp;

pub use budget::{Budget, OnExhausted};
pub use check::{is_signal_name, label_problem};
pub use derived_id::{compensated_step, compensation_id, entry_id, planned_step};
pub use document::{ComposedDocument, EXECUTOR_STAGE_COMMANDS, FileContent, Format, NamedFile, PlanText, refused_name};
pub use draft::{AuditLevel, CONTEXT_INPUT, CheckDraft, Dependency, Input, Outcome, PlanDraft, RunWhen, StepDraft};
pub use error::{InvalidPlan, StepProblem, Violation};
pub use escalation::{Escalation, Then};
pub use kinds::*;
pub use limit::{ExecutionLimit, LimitBound, LimitClaim, LimitDraft, StartRate, WhenFull};
pub use matrix::entries;
pub use nearest::nearest;
pub use plan::{
    CallPlace, Check, CheckPlace, ConditionPlace, ModelPlace, Plan, PlanPart, PlannedCall, PlannedStep, StepSpec,
};
pub use recovery::{MAX_QUEUED_ATTEMPTS, OnError, RecoveryStrategy};
pub use repeat::{Repeat, RepeatDraft};
pub use retry::{Backoff, Never, Profile, QUEUE_DELAY, QueueForLater, RateLimit, RetryPolicy};
pub use schema::schema;
pub use template::{Condition, ConditionValues, StepValue, Template, TemplateError, UnresolvedReference};
