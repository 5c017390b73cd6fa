//! Policies: rules about what a call is asked to do, and about what it changed in its view.
//!
//! A [`Policy`] decides twice: before a call, whether it may run ([`Policy::intent`]); after it ran in a copy-on-write view, whether its changes
//! may be committed ([`Policy::effect`]). The second decision is the one that protects the workspace. A command line does not reveal what the
//! command will do, so rules on programs and arguments are a convenience. The protection is the sandbox around the command, and the judgement of
//! its actual effect.
//!
//! A file has a policy for all namespaces, and sections for those that have one of their own: [`Policies::of`] gives the one that judges.
//!
//! The approval gate publishes them as signed bytes ([`RevisedPolicies`]), and every tool runner enforces it. Pure: no clock, no files.

mod allowing;
mod built_in;
mod canonical;
mod check;
mod decision;
mod document;
mod examples;
mod judge;
mod patterns;
mod policies;
mod policy;
mod protect;
mod quote;
mod revised;
mod rules;
mod yaml;

pub use belay_yaml::Violation;
pub use decision::{
    ChangeFact, ChangeKind, Decision, Effect, Gravity, Intent, NetworkAccess, NonInteractive, Tier, ToolKind, Verdict,
};
pub use judge::{COMMIT_CHANGES, REBASE_CHANGES};
pub use policies::Policies;
pub use policy::Policy;
pub use protect::{PROTECTED_PATHS, ProtectedPaths, protection};
pub use revised::{InvalidPolicy, RevisedPolicies};
