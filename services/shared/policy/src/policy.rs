//! A policy that is ready to be used.

use std::{fmt, sync::Arc, time::Duration};

use crate::{NonInteractive, Tier, Violation, check, document::Document, rules::Rules};

/// The policy of one namespace, checked and compiled. Only [`crate::Policies`] has them, by namespace.
#[derive(Clone)]
pub struct Policy {
    /// Its settings and all its rules: those at the top of the file first, then those of its section.
    pub(crate) document: Arc<Document>,
    /// Its section; `None` for the policy at the top.
    pub(crate) section: Option<Arc<Section>>,
    pub(crate) intents: Arc<Rules>,
    pub(crate) effects: Arc<Rules>,
}

/// Where the policy of a namespace stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The namespace.
    pub(crate) namespace: String,
    /// How many rules come from the top.
    pub(crate) inherited: usize,
}

impl Policy {
    /// The weakest sandbox tier in which a command may run.
    pub fn min_tier(&self) -> Tier {
        self.document.sandbox.min_tier
    }

    /// The treatment of approvals in executions that are started without a person.
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
        Self::checked(document, 0)
    }

    fn checked(document: Document, known: usize) -> Result<Self, Vec<Violation>> {
        let (intents, effects) = check::check(&document, known)?;
        Ok(Self { document: Arc::new(document), section: None, intents: Arc::new(intents), effects: Arc::new(effects) })
    }

    /// This policy in a namespace: with its settings, and with its rules after the ones here.
    pub(crate) fn with_section(&self, namespace: &str, section: Document) -> Result<Self, Vec<Violation>> {
        let inherited = self.document.rules.len();
        let rules = self.document.rules.iter().cloned().chain(section.rules).collect();
        let policy = Self::checked(Document { rules, ..section }, inherited).map_err(|violations| {
            let placed = |violation: Violation| Violation {
                field: in_section(namespace, &violation.field, inherited),
                ..violation
            };
            violations.into_iter().map(placed).collect::<Vec<_>>()
        })?;
        Ok(Self { section: Some(Arc::new(Section { namespace: namespace.to_owned(), inherited })), ..policy })
    }

    /// The settings of its namespace and the rules of its section alone.
    pub(crate) fn section(&self) -> Document {
        let inherited = self.section.as_ref().map_or(0, |section| section.inherited);
        Document { rules: self.document.rules[inherited..].to_vec(), ..(*self.document).clone() }
    }
}

/// The field of a section that a field of its whole policy is: rules are counted in the section alone.
fn in_section(namespace: &str, field: &str, inherited: usize) -> String {
    let rule = field.strip_prefix("rules[").and_then(|rest| rest.split_once(']'));
    let own = rule.and_then(|(index, rest)| Some((index.parse::<usize>().ok()?.checked_sub(inherited)?, rest)));
    match own {
        Some((index, rest)) => format!("namespaces.{namespace}.rules[{index}]{rest}"),
        None if field.is_empty() => format!("namespaces.{namespace}"),
        None => format!("namespaces.{namespace}.{field}"),
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        // The rest is compiled from it.
        self.document == other.document && self.section == other.section
    }
}

impl Eq for Policy {}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.document.fmt(f)
    }
}
