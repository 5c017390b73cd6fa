//! Parses YAML into a tree, within bounds on nesting, aliases and expanded size.

use serde::{Deserialize, Deserializer};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{
    Error, Location, MessageFormatter, Options, Spanned, UserMessageFormatter, alias_limits, budget, options,
};

use super::tree::{Key, Kind, KindVisitor, Node, SyntaxError};
use crate::{
    limits::{MAX_DEPTH, MAX_PLAN_BYTES},
    path::shown,
};

/// The maximum nesting of a document: the arguments of a step, the four levels around them, and one more, so that an error about too deep
/// arguments can name their field.
const MAX_DOCUMENT_DEPTH: usize = MAX_DEPTH + 5;

/// The maximum number of values of a document, aliases expanded: a hundred for each of 10,000 steps.
const MAX_NODES: usize = 1_000_000;

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let YamlNode(root) = serde_saphyr::from_str_with_options(text, rules()).map_err(|error| {
        let error = error.without_snippet();
        let counted = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let (line, column) =
            error.location().map_or((0, 0), |location| (counted(location.line()), counted(location.column())));
        SyntaxError { message: message(error), line, column }
    })?;
    Ok(root)
}

fn message(error: &Error) -> String {
    match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            format!("the plan is nested deeper than {MAX_DOCUMENT_DEPTH} levels: flatten it")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            format!(
                "the plan exceeds the limit of {MAX_PLAN_BYTES} bytes or {MAX_NODES} values, with its aliases expanded: split it"
            )
        }
        Error::AliasError { error, .. } => message(error),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("invalid YAML: `{}` is given twice", shown(key)),
        Error::MultipleDocuments { .. } => {
            "invalid YAML: there is more than one document: leave one, without `---`".to_owned()
        }
        other => format!("invalid YAML: {}", shown(&UserMessageFormatter.format_message(other))),
    }
}

/// YAML 1.2: `yes` and `on` are text. Keys are unique, and numbers are JSON numbers.
fn rules() -> Options {
    options! {
        budget: budget! {
            max_depth: MAX_DOCUMENT_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            // Aliases may repeat a value, but not expand to more than an author could have written out.
            max_total_scalar_bytes: MAX_PLAN_BYTES,
            // One anchor for the retry policy of a thousand steps is good style.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DOCUMENT_DEPTH,
        },
        emit_comments: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn byte_offset(location: &Location) -> Option<usize> {
    usize::try_from(location.span().byte_offset()?).ok()
}

struct YamlNode(Node);

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: YamlKind(kind), defined, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self(Node { offset: byte_offset(&defined).unwrap_or_default(), kind }))
    }
}

impl From<YamlNode> for Node {
    fn from(node: YamlNode) -> Self {
        node.0
    }
}

struct YamlKind(Kind);

impl<'de> Deserialize<'de> for YamlKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor::<YamlNode, YamlKey>::new()).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct YamlKey(Spanned<String>);

impl From<YamlKey> for Key {
    fn from(YamlKey(key): YamlKey) -> Self {
        Self { offset: byte_offset(&key.defined).unwrap_or_default(), name: key.value }
    }
}
