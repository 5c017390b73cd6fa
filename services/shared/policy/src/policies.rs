//! The policies of all namespaces.

use std::collections::BTreeMap;

use belay_yaml::shown;

use crate::{
    NonInteractive, Policy, Tier, Violation,
    canonical::{self, MAX_BYTES},
    check,
    document::Document,
};

/// The maximum number of namespaces with a section of their own.
const MAX_NAMESPACES: usize = 100;
/// The maximum number of globs that are compiled: each section's rules are, together with those at the top.
const MAX_COMPILED_GLOBS: usize = 20_000;

/// The policies of all namespaces: the one at the top of the file, and those of the namespaces with a section of their own.
///
/// It judges nothing: [`Policies::of`] says which policy does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    top: Policy,
    sections: BTreeMap<String, Policy>,
}

impl Policies {
    /// The built-in policy: writing is allowed, deletions and changes by commands require approval, and commands run in the strongest sandbox.
    pub fn preset() -> Self {
        Self::built_in(Document::default())
    }

    /// The built-in policy for a single person who starts executions and decides, as on a laptop. It differs from the preset in one way: it
    /// approves automatically in executions that were started with that mode. With several people, that would let the executor approve.
    pub fn of_one_person() -> Self {
        Self::built_in(Document { non_interactive_policy: NonInteractive::Auto, ..Document::default() })
    }

    fn built_in(document: Document) -> Self {
        Self::new(document, BTreeMap::new()).expect("the preset has no rules that could be wrong")
    }

    /// The policy that judges the calls of a namespace: that of its section, else the one at the top.
    pub fn of(&self, namespace: &str) -> &Policy {
        self.sections.get(namespace).unwrap_or(&self.top)
    }

    /// The strongest of the sandbox tiers that the policies require.
    pub fn min_tier(&self) -> Tier {
        let policies = self.sections.values().chain([&self.top]);
        policies.map(Policy::min_tier).max().expect("there is a policy at the top")
    }

    /// Checks policies and compiles them. A section has the settings of its namespace, and the rules that it adds to those at the top.
    pub(crate) fn new(top: Document, sections: BTreeMap<String, Document>) -> Result<Self, Vec<Violation>> {
        let top = Policy::new(top)?;
        let mut found = Vec::new();
        let mut refuse = |field: String, message| found.push(Violation { field, line: 0, message });
        if sections.len() > MAX_NAMESPACES {
            let message = format!("there are {} namespaces and the limit is {MAX_NAMESPACES}", sections.len());
            refuse("namespaces".to_owned(), message);
        }
        let shared = check::globs(&top.document);
        let globs = sections.values().map(|section| shared + check::globs(section)).sum::<usize>();
        if globs > MAX_COMPILED_GLOBS {
            let message = format!(
                "the globs at the top ({shared}) count once more for each section, which makes {globs}, and the limit is \
                 {MAX_COMPILED_GLOBS}: combine or remove some"
            );
            refuse("namespaces".to_owned(), message);
        }
        for name in sections.keys().filter(|name| !is_namespace(name)) {
            let message =
                "is not the name of a namespace: 1 to 64 lower-case letters, digits and `-`, not beginning with `-`";
            refuse(format!("namespaces.{}", shown(name)), message.to_owned());
        }
        if !found.is_empty() {
            return Err(found);
        }
        let mut policies = BTreeMap::new();
        for (name, section) in sections {
            match top.with_section(&name, section) {
                Ok(policy) => drop(policies.insert(name, policy)),
                Err(violations) => found.extend(violations),
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let policies = Self { top, sections: policies };
        let (document, sections) = policies.documents();
        let length = canonical::length(document, sections);
        if length > MAX_BYTES {
            let message =
                format!("the policy has {length} bytes in its signed form and the limit is {MAX_BYTES}: shorten it");
            return Err(vec![Violation { field: String::new(), line: 0, message }]);
        }
        Ok(policies)
    }

    /// The sources of the policies, as for [`Policies::new`].
    pub(crate) fn documents(&self) -> (&Document, BTreeMap<&str, Document>) {
        let own = self.sections.iter().map(|(name, policy)| (name.as_str(), policy.section()));
        (&self.top.document, own.collect())
    }
}

/// 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a digit.
fn is_namespace(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
}
