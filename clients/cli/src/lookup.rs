//! Finds executions and approvals: from what people type to the names that the contract takes.

use belay_proto::v1::{ExecutionView, GetExecutionRequest, ListExecutionsRequest, ListNamespacesRequest};
use belay_reasons as reasons;
use tonic::Code;

use crate::{
    connect::Client,
    failure::{Failure, Report},
    names::{id, parent},
    next,
};

/// How many candidates an ambiguous prefix shows.
pub(crate) const CANDIDATES: i32 = 5;

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// An execution.
    Execution,
    /// An approval.
    Approval,
}

impl ResourceKind {
    /// The word for one, and the collection in names.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ResourceKind::Execution => ("execution", "executions"),
            ResourceKind::Approval => ("approval", "approvals"),
        }
    }
}

/// A person's text for a resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResourceText<'a> {
    /// `@last`.
    Last,
    /// `namespaces/*/…/*`.
    Full(&'a str),
    /// An id, or the beginning of one.
    Prefix(&'a str),
}

/// Reads what a person types.
///
/// # Errors
/// When it can name nothing.
pub(crate) fn read(kind: ResourceKind, text: &str) -> Result<ResourceText<'_>, Failure> {
    let (word, collection) = kind.words();
    let is_id = |id: &str| {
        !id.is_empty()
            && id.len() <= 64
            && id.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !id.starts_with('-')
    };
    match text.split('/').collect::<Vec<_>>().as_slice() {
        ["@last"] => Ok(ResourceText::Last),
        ["namespaces", namespace, kind, id] if *kind == collection && !namespace.is_empty() && is_id(id) => {
            Ok(ResourceText::Full(text))
        }
        [id] if is_id(id) => Ok(ResourceText::Prefix(text)),
        _ => Err(Report::new(
            reasons::INVALID_USAGE,
            format!("`{text}` is not valid: use the {word}'s id, the beginning of its id, or @last"),
        )
        .next(next::command(&[collection, "list"]))
        .into()),
    }
}

/// How much a namespace must resemble another to be suggested; 1 is the same.
const ALIKE: f64 = 0.8;
/// The most namespaces that are named where one is not found.
const NAMESPACES_SHOWN: usize = 5;

/// The namespaces that have executions. Empty also where they cannot be read: they only help to find a mistake.
pub(crate) async fn namespaces(client: &mut Client) -> Vec<String> {
    let request = ListNamespacesRequest { page_size: 1_000, ..Default::default() };
    let listed = client.list_namespaces(request).await.map(|page| page.into_inner().namespaces);
    listed.unwrap_or_default().into_iter().map(|namespace| id(&namespace.name).to_owned()).collect()
}

/// The known name that a mistyped one probably means.
pub(crate) fn similar<'a>(mistyped: &str, known: &'a [String]) -> Option<&'a str> {
    let likeness = |known: &str| match strsim::damerau_levenshtein(known, mistyped) {
        // One typing error, also in a short name.
        1 if mistyped.len() > 2 => 1.0,
        _ => strsim::jaro_winkler(known, mistyped),
    };
    let likely = known.iter().map(|known| (likeness(known), known.as_str())).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likely.0 >= ALIKE).then_some(likely.1)
}

/// The problem with a namespace that has no executions while others have, and the command line with the namespace that was probably
/// meant: ``namespace `defualt` has no executions; did you mean `default`?``. `None` where the namespace has executions, or none has.
pub(crate) fn elsewhere(namespace: &str, known: &[String]) -> Option<(String, String)> {
    if known.is_empty() || known.iter().any(|known| known == namespace) {
        return None;
    }
    let empty = format!("namespace `{namespace}` has no executions");
    if let Some(similar) = similar(namespace, known) {
        return Some((format!("{empty}; did you mean `{similar}`?"), next::in_namespace(similar)));
    }
    let more = known.len().checked_sub(NAMESPACES_SHOWN).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    let shown: Vec<String> = known.iter().take(NAMESPACES_SHOWN).map(|known| format!("`{known}`")).collect();
    let have = if known.len() == 1 { "has" } else { "have" };
    Some((format!("{empty}; {}{more} {have}", shown.join(", ")), next::in_namespace(&known[0])))
}

/// The full name of the execution a person means.
pub(crate) async fn resolve(client: &mut Client, namespace: &str, text: &str) -> Result<String, Failure> {
    let parent = parent(namespace);
    let (prefix, page_size) = match read(ResourceKind::Execution, text)? {
        ResourceText::Full(name) => return Ok(name.to_owned()),
        ResourceText::Last => ("", 1),
        ResourceText::Prefix(prefix) => {
            let name = format!("{parent}/executions/{prefix}");
            let request = GetExecutionRequest { name: name.clone(), view: ExecutionView::Basic.into() };
            match client.get_execution(request).await {
                Ok(_) => return Ok(name),
                Err(status) if status.code() == Code::NotFound => (prefix, CANDIDATES + 1),
                Err(status) => return Err(status.into()),
            }
        }
    };
    // A prefix has the characters of an id only.
    let filter = if prefix.is_empty() { String::new() } else { format!("id = \"{prefix}*\"") };
    // The last is one that a person or a planner has started; by its id any is meant.
    let include_children = !prefix.is_empty();
    let mut request = ListExecutionsRequest { parent, page_size, filter, include_children, ..Default::default() };
    let wanted = usize::try_from(page_size).unwrap_or(1);
    let mut found: Vec<String> = Vec::new();
    loop {
        let page = client.list_executions(request.clone()).await?.into_inner();
        found.extend(page.executions.into_iter().map(|execution| execution.name));
        if page.next_page_token.is_empty() || found.len() >= wanted {
            break;
        }
        request.page_token = page.next_page_token;
    }
    let is_missing = found.is_empty();
    match choose(ResourceKind::Execution, namespace, prefix, found) {
        Err(Failure::Report(report)) if is_missing => {
            Err(in_another_namespace(*report, namespace, &namespaces(client).await).into())
        }
        chosen => chosen,
    }
}

/// The report that something was not found, with the namespace where it probably is.
pub(crate) fn in_another_namespace(report: Report, namespace: &str, known: &[String]) -> Report {
    match elsewhere(namespace, known) {
        Some((what, next)) => report.detail(what).next(next),
        None => report,
    }
}

/// The only name that begins with the prefix.
///
/// # Errors
/// When there is none or more than one, with the command to type next.
pub(crate) fn choose(
    kind: ResourceKind,
    namespace: &str,
    prefix: &str,
    mut found: Vec<String>,
) -> Result<String, Failure> {
    let (word, collection) = kind.words();
    let missing = match kind {
        ResourceKind::Execution => reasons::EXECUTION_NOT_FOUND,
        ResourceKind::Approval => reasons::APPROVAL_NOT_FOUND,
    };
    let ambiguous = match kind {
        ResourceKind::Execution => reasons::EXECUTION_AMBIGUOUS,
        ResourceKind::Approval => reasons::APPROVAL_AMBIGUOUS,
    };
    match (found.len(), prefix) {
        (1, _) => Ok(found.remove(0)),
        (0, "") => {
            let report = Report::new(missing, format!("there is no {word} in namespace {namespace} yet"));
            let next = match kind {
                ResourceKind::Execution => next::command(&["run", "--help"]),
                ResourceKind::Approval => next::command(&["executions", "list"]),
            };
            Err(report.next(next).into())
        }
        (0, _) => Err(Report::new(
            missing,
            format!("no {word} in namespace {namespace} has an id that begins with `{prefix}`"),
        )
        .next(next::command(&[collection, "list"]))
        .into()),
        (many, _) => {
            let shown = many.min(CANDIDATES as usize);
            let mut report = Report::new(ambiguous, format!("more than one {word} begins with `{prefix}`"));
            report.details = found.iter().take(shown).map(|name| id(name).to_owned()).collect();
            if many > shown {
                report.details.push("…".to_owned());
            }
            Err(report.detail("type more of the id").next(next::command(&[collection, "list"])).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        assert_eq!(read(ResourceKind::Execution, "@last").unwrap(), ResourceText::Last);
        assert_eq!(read(ResourceKind::Execution, "a1-b").unwrap(), ResourceText::Prefix("a1-b"));
        assert_eq!(
            read(ResourceKind::Execution, "namespaces/x/executions/a").unwrap(),
            ResourceText::Full("namespaces/x/executions/a")
        );
        for wrong in ["", "@first", "A", "-a", "a/b", "namespaces/x/executions/", "namespaces//executions/a", "a b"] {
            assert_eq!(read(ResourceKind::Execution, wrong).unwrap_err().report().code, "INVALID_USAGE", "{wrong}");
        }
    }

    #[test]
    fn an_approval_is_not_an_execution() {
        let name = "namespaces/x/approvals/a";
        assert_eq!(read(ResourceKind::Approval, name).unwrap(), ResourceText::Full(name));
        assert!(read(ResourceKind::Execution, name).is_err());
        let report = choose(ResourceKind::Approval, "default", "x", vec![]).unwrap_err().report();
        assert_eq!(
            (report.code.as_str(), report.next.as_deref()),
            ("APPROVAL_NOT_FOUND", Some("belay approvals list"))
        );
    }

    #[test]
    fn a_namespace_without_executions_is_told_from_an_empty_list() {
        let known = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let said = |namespace: &str, names: &[&str]| elsewhere(namespace, &known(names)).map(|(what, _)| what);
        assert_eq!(
            said("defualt", &["default", "team"]).as_deref(),
            Some("namespace `defualt` has no executions; did you mean `default`?")
        );
        assert_eq!(said("x", &["default"]).as_deref(), Some("namespace `x` has no executions; `default` has"));
        let many = said("zzz", &["a", "b", "c", "d", "e", "f"]);
        let many = many.as_deref();
        assert_eq!(many, Some("namespace `zzz` has no executions; `a`, `b`, `c`, `d`, `e` and 1 more have"));
        assert_eq!(said("team", &["default", "team"]), None, "its filters found nothing");
        assert_eq!(said("default", &[]), None, "nothing has run anywhere");
    }

    #[test]
    fn a_prefix_must_name_one() {
        let names =
            |ids: &[&str]| ids.iter().map(|id| format!("namespaces/default/executions/{id}")).collect::<Vec<_>>();
        assert_eq!(
            choose(ResourceKind::Execution, "default", "a", names(&["ab"])).unwrap(),
            "namespaces/default/executions/ab"
        );
        assert_eq!(
            choose(ResourceKind::Execution, "default", "a", vec![]).unwrap_err().report().code,
            "EXECUTION_NOT_FOUND"
        );
        assert_eq!(
            choose(ResourceKind::Execution, "default", "", vec![]).unwrap_err().report().next.as_deref(),
            Some("belay run --help")
        );
        let report = choose(ResourceKind::Execution, "default", "a", names(&["a1", "a2", "a3", "a4", "a5", "a6"]))
            .unwrap_err()
            .report();
        assert_eq!(
            (report.code.as_str(), report.details.join(" ")),
            ("EXECUTION_AMBIGUOUS", "a1 a2 a3 a4 a5 … type more of the id".to_owned())
        );
    }
}
