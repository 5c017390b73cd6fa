//! What may happen: rules about what a call is asked to do, and about what it did in its view.
//!
//! A [`Policy`] answers two questions. Before a call: may it run ([`Policy::intent`])? After it ran in a copy-on-write view, and before
//! anything of that is kept: may this be committed ([`Policy::effect`])? The second is the one that counts. What a command will do cannot
//! be told from its words: rules on programs and arguments are a courtesy to the user, never the wall. The wall is the sandbox around the
//! command, and the judgement of its true effect.
//!
//! The approval gate publishes a policy as signed bytes ([`Revised`]); every tool runner holds and enforces it. Pure: no clock, no files.

mod check;
mod document;
mod examples;
mod judge;
mod patterns;
mod protect;
mod question;
mod revised;
mod rules;
mod yaml;

use std::{fmt, sync::Arc, time::Duration};

pub use belay_yaml::Violation;
pub use protect::{PROTECTED_PATHS, ProtectedPaths, protection};
pub use question::{
    ChangeFact, ChangeKind, Decision, Effect, Gravity, Intent, NonInteractive, Tier, ToolKind, Verdict,
};
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
    /// The built-in policy: writing is free, deletions and what commands changed are shown to a person first, everything in the strongest
    /// sandbox.
    pub fn preset() -> Self {
        Self::new(Document::default()).expect("the preset has no rules that could be wrong")
    }

    /// The built-in policy where the person who starts executions also decides, as on a laptop: it differs from the preset in that an
    /// execution that was started without asking is approved. Everywhere else such a yes would be the executor's own.
    pub fn of_one_person() -> Self {
        let document = Document { non_interactive_policy: NonInteractive::Auto, ..Document::default() };
        Self::new(document).expect("the preset has no rules that could be wrong")
    }

    /// Reads a policy from YAML. What it leaves out is as in the preset.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines: never empty, at most 100 entries.
    pub fn from_yaml(text: &str) -> Result<Self, Vec<Violation>> {
        yaml::parse(text)
    }

    /// The least of a sandbox that a command may run in.
    pub fn min_tier(&self) -> Tier {
        self.document.sandbox.min_tier
    }

    /// What may happen without a person, where an execution asks for that.
    pub fn non_interactive(&self) -> NonInteractive {
        self.document.non_interactive_policy
    }

    /// After how long an approval without a decision is denied; never when `None`.
    pub fn approvals_expire_after(&self) -> Option<Duration> {
        self.document.approvals.expire_after.map(Duration::from_secs)
    }

    /// Whether a protected path alone requires approval.
    pub fn protects(&self) -> bool {
        self.document.protect
    }

    /// Whether another person than the one who started the execution has to decide.
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
