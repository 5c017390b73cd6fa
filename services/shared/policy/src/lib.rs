//! Policies: rules about what a call is asked to do, and about what it changed in its view.
//!
//! A [`Policy`] decides twice: before a call, whether it may run ([`Policy::intent`]); after it ran in a copy-on-write view, whether its changes
//! may be committed ([`Policy::effect`]). The second decision is the one that protects the workspace. A command line does not reveal what the
//! command will do, so rules on programs and arguments are a convenience. The protection is the sandbox around the command, and the judgement of
//! its actual effect.
//!
//! The approval gate publishes a policy as signed bytes ([`Revised`]), and every tool runner enforces it. Pure: no clock, no files.

mod check;
mod decision;
mod document;
mod examples;
mod judge;
mod patterns;
mod protect;
mod revised;
mod rules;
mod yaml;

use std::{fmt, sync::Arc, time::Duration};

pub use belay_yaml::Violation;
pub use decision::{
    ChangeFact, ChangeKind, Decision, Effect, Gravity, Intent, NonInteractive, Tier, ToolKind, Verdict,
};
pub use protect::{PROTECTED_PATHS, ProtectedPaths, protection};
pub use revised::{InvalidPolicy, Revised};

use document::Document;
use rules::Rules;

/// A policy that has been checked and compiled.
#[derive(Clone)]
pub struct Policy {
    document: Arc<Document>,
    intents: Arc<Rules>,
    effects: Arc<Rules>,
}

impl Policy {
    /// The built-in policy: writing is allowed, deletions and changes by commands require approval, and commands run in the strongest sandbox.
    pub fn preset() -> Self {
        Self::new(Document::default()).expect("the preset has no rules that could be wrong")
    }

    /// The built-in policy for a single person who starts executions and decides, as on a laptop. It differs from the preset in one way: it
    /// approves automatically in executions that were started with that mode. With several people, that would let the executor approve.
    pub fn of_one_person() -> Self {
        let document = Document { non_interactive_policy: NonInteractive::Auto, ..Document::default() };
        Self::new(document).expect("the preset has no rules that could be wrong")
    }

    /// Parses a policy from YAML. The preset provides the defaults.
    ///
    /// # Errors
    /// All violations, in the order of its lines: never empty, at most 100.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Violation>> {
        yaml::parse(text)
    }

    /// The weakest sandbox tier in which a command may run.
    pub fn min_tier(&self) -> Tier {
        self.document.sandbox.min_tier
    }

    /// What happens to approvals in executions that are started without a person.
    pub fn non_interactive(&self) -> NonInteractive {
        self.document.non_interactive_policy
    }

    /// The time after which an approval without a decision is denied; `None` means never.
    pub fn approvals_expire_after(&self) -> Option<Duration> {
        self.document.approvals.expire_after.map(Duration::from_secs)
    }

    /// Whether changes of protected paths require approval.
    pub fn protects(&self) -> bool {
        self.document.protect
    }

    /// Whether the person who started an execution must not decide about it.
    pub fn separate_duties(&self) -> bool {
        self.document.approvals.separate_duties
    }

    fn new(document: Document) -> Result<Self, Vec<Violation>> {
        let (intents, effects) = check::check(&document)?;
        Ok(Self { document: Arc::new(document), intents: Arc::new(intents), effects: Arc::new(effects) })
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        // The rest is compiled from it.
        self.document == other.document
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document.fmt(f)
    }
}
