//! A policy that is ready to be used.

use std::{fmt, sync::Arc, time::Duration};

use crate::{NonInteractive, Tier, Violation, check, document::Document, rules::Rules};

/// A policy that has been checked and compiled.
#[derive(Clone)]
pub struct Policy {
    pub(crate) document: Arc<Document>,
    pub(crate) intents: Arc<Rules>,
    pub(crate) effects: Arc<Rules>,
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

    /// Checks a policy and compiles it.
    pub(crate) fn new(document: Document) -> Result<Self, Vec<Violation>> {
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
