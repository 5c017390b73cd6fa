//! YAML into a tree. What a text may cost is bounded before it is spent: nesting, aliases, and what they expand to.

use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter, alias_limits, budget, options};

use super::tree::{Key, Kind, KindVisitor, Node, SyntaxError};
use crate::{
    limits::{MAX_DEPTH, MAX_PLAN_BYTES},
    path::shown,
};

/// How deep a document may be nested: the arguments of a step, and the levels around them. A little more than that is let through, so
/// that too deep arguments are refused by the name of their field.
const MAX_DOCUMENT_DEPTH: usize = MAX_DEPTH + 8;

/// Most values of a document, aliases expanded: a hundred for each of 10,000 steps.
const MAX_NODES: usize = 1_000_000;

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let YamlNode(root) = serde_saphyr::from_str_with_options(text, rules()).map_err(|error| {
        let error = error.without_snippet();
        let message = shown(&UserMessageFormatter.format_message(error));
        SyntaxError {
            message: format!("this is not YAML that can be read: {message}"),
            offset: error.location().and_then(|location| byte_offset(&location)),
        }
    })?;
    Ok(root)
}

/// YAML 1.2 as far as it goes: `yes` and `on` are text. Keys are unique, and numbers are numbers of JSON.
fn rules() -> Options {
    options! {
        budget: budget! {
            max_depth: MAX_DOCUMENT_DEPTH,
            flow_nesting_limit: MAX_DOCUMENT_DEPTH,
            max_documents: 1,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            // Aliases may say the same thing again and again, but not make more of it than an author could have written out.
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
