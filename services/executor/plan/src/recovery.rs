//! Recovery strategies for failures of steps, by the class of the failure (S4-29).

use std::collections::BTreeMap;

use belay_reasons::ErrorClass;
use serde::{Deserialize, Serialize};

/// Strategies for the final failure of a step, by the class of the failure. A class that is missing has no strategy: the step fails.
pub type OnError = BTreeMap<ErrorClass, RecoveryStrategy>;

/// The reaction to the final failure of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryStrategy {
    /// The step completes with the last result of the same call: the same tool with the same arguments, in this execution or in an earlier one of the same
    /// plan and principal. It fails when there is none.
    UseCache,
    /// The execution is paused until there is room again, as with [`crate::RateLimit::QueueForLater`], and the call is made up to [`MAX_QUEUED_ATTEMPTS`] times.
    QueueForLater,
    /// The execution stops, and what its steps have done is undone.
    Compensate,
}

/// How often a call is made that [`RecoveryStrategy::QueueForLater`] queues, where the step's retry policy allows fewer attempts: with the delay of
/// [`crate::QUEUE_DELAY`] three quarters of an hour.
pub const MAX_QUEUED_ATTEMPTS: u32 = 10;

/// The classes for which a plan can say something. A cancelled step was cancelled, and one whose outcome is not known waits for a person.
const CLASSES: [ErrorClass; 15] = [
    ErrorClass::Crash,
    ErrorClass::RateLimit,
    ErrorClass::Fatal,
    ErrorClass::AgentUnavailable,
    ErrorClass::Transient,
    ErrorClass::Timeout,
    ErrorClass::InvalidArguments,
    ErrorClass::InvalidResult,
    ErrorClass::PreconditionFailed,
    ErrorClass::PostconditionFailed,
    ErrorClass::SandboxViolation,
    ErrorClass::ApprovalDenied,
    ErrorClass::PolicyDenied,
    ErrorClass::BudgetExhausted,
    ErrorClass::Internal,
];

/// The class with this name, if a plan can say something for it.
pub(crate) fn class_named(name: &str) -> Option<ErrorClass> {
    CLASSES.into_iter().find(|class| class.name() == name)
}

/// The names of the classes for which a plan can say something.
pub(crate) fn class_names() -> impl Iterator<Item = &'static str> {
    CLASSES.into_iter().map(ErrorClass::name)
}

impl RecoveryStrategy {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("use_cache", Self::UseCache), ("queue_for_later", Self::QueueForLater), ("compensate", Self::Compensate)];

    /// Its name, as authors write it.
    pub(crate) fn word(self) -> &'static str {
        Self::WORDS.into_iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }

    /// The names of the classes for which it can be said.
    pub(crate) fn classes(self) -> impl Iterator<Item = &'static str> {
        CLASSES.into_iter().filter(move |class| self.is_for(*class)).map(ErrorClass::name)
    }

    /// Whether it can follow a failure of this class. An earlier result stands in for a call that could not be made or did not end in time, not for one
    /// that was refused or has done something else than it should.
    pub(crate) fn is_for(self, class: ErrorClass) -> bool {
        match self {
            Self::UseCache => matches!(
                class,
                ErrorClass::Crash
                    | ErrorClass::RateLimit
                    | ErrorClass::AgentUnavailable
                    | ErrorClass::Transient
                    | ErrorClass::Timeout
            ),
            Self::QueueForLater => class == ErrorClass::RateLimit,
            Self::Compensate => CLASSES.contains(&class),
        }
    }

    /// Whether it is only for steps that call a tool.
    pub(crate) fn is_for_calls(self) -> bool {
        match self {
            Self::UseCache | Self::QueueForLater => true,
            Self::Compensate => false,
        }
    }
}

/// Classes by their names in the contract.
pub(crate) mod by_name {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use super::{BTreeMap, OnError, RecoveryStrategy, class_named};

    pub(crate) fn serialize<S: Serializer>(on_error: &OnError, serializer: S) -> Result<S::Ok, S::Error> {
        let named: BTreeMap<&str, RecoveryStrategy> =
            on_error.iter().map(|(class, strategy)| (class.name(), *strategy)).collect();
        named.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OnError, D::Error> {
        let named = BTreeMap::<String, RecoveryStrategy>::deserialize(deserializer)?;
        let classes = named.into_iter().map(|(name, strategy)| {
            let class =
                class_named(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is not a class of failures")));
            Ok((class?, strategy))
        });
        classes.collect()
    }
}
