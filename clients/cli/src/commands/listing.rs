//! Shared by the `list` commands: the filter by state, the pages, and the output.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::{
    args::Format,
    connect::Client,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup, next,
    render::{
        json,
        text::{Line, Style},
    },
};

/// How much of a list is wanted, and from where on.
#[derive(clap::Args, Debug)]
pub(crate) struct Extent {
    /// The maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue an earlier list, by the token it ended with; the filters must be the same
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// List all entries
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Extent {
    fn limit(&self) -> usize {
        if self.all { usize::MAX } else { usize::try_from(self.limit).unwrap_or(usize::MAX) }
    }
}

/// The most that one page may hold (`page_size` of every list in the contract).
const MAX_PAGE_SIZE: usize = 1_000;

/// Reads a state by the word that the screen has for it.
pub(super) fn states<S>(all: &'static [S], word: fn(S) -> String) -> impl TypedValueParser<Value = S>
where
    S: Copy + Default + Send + Sync + 'static,
{
    let names: Vec<String> = all.iter().map(|state| word(*state)).collect();
    PossibleValuesParser::new(names).map(move |name| {
        let is_named = |state: &S| word(*state).eq_ignore_ascii_case(&name);
        all.iter().copied().find(is_named).unwrap_or_default()
    })
}

/// ` is pending or denied`, for a list that found nothing; nothing without such a filter.
pub(super) fn sought<S: Copy>(states: &[S], word: fn(S) -> String) -> String {
    let words: Vec<String> = states.iter().map(|state| word(*state)).collect();
    if words.is_empty() { String::new() } else { format!(" is {}", words.join(" or ")) }
}

/// The namespaces that have executions, for a list that found nothing; none for programs and for other lists.
pub(super) async fn elsewhere<T>(context: &Context, client: &mut Client, found: &ListPage<T>) -> Vec<String> {
    match context.screen.format == Format::Text && found.items.is_empty() {
        true => lookup::namespaces(client).await,
        false => Vec::new(),
    }
}

/// The entries, and the token of the next page; empty on the last.
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    pub(super) next_page_token: String,
}

/// The requested part of a list. `page` requests a page of this size after a token.
pub(super) async fn wanted<T>(
    extent: &Extent,
    page: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<ListPage<T>, Failure> {
    pages_after(extent.page_token.clone().unwrap_or_default(), extent.limit(), page).await
}

/// Pages from the first until there are `limit` items or no more.
pub(super) async fn pages<T>(
    limit: usize,
    page: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<ListPage<T>, Failure> {
    pages_after(String::new(), limit, page).await
}

/// The whole list.
pub(super) async fn every<T>(
    page: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<Vec<T>, Failure> {
    Ok(pages(usize::MAX, page).await?.items)
}

async fn pages_after<T>(
    token: String,
    limit: usize,
    mut page: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<ListPage<T>, Failure> {
    let mut found = ListPage { items: Vec::new(), next_page_token: token };
    loop {
        let missing = (limit - found.items.len()).min(MAX_PAGE_SIZE);
        let (items, next) = page(i32::try_from(missing).unwrap_or(i32::MAX), found.next_page_token).await?;
        found.items.extend(items);
        found.next_page_token = next;
        if found.next_page_token.is_empty() || found.items.len() >= limit {
            return Ok(found);
        }
    }
}

/// Prints what was found, as the screen's format says: in JSON as the contract's own message, which `whole` makes. For an empty list
/// it says what was looked for, or that the namespace has no executions: `namespaces` are those that have some.
pub(super) fn print<T: Serialize, W: Serialize>(
    context: &Context,
    ListPage { items, next_page_token }: ListPage<T>,
    whole: impl FnOnce(Vec<T>, String) -> W,
    lines: impl FnOnce(&[T]) -> Vec<Line>,
    sought: impl FnOnce() -> String,
    namespaces: &[String],
) -> Result<Exit, Failure> {
    let more = (!next_page_token.is_empty()).then(|| {
        Line::default().and(Style::Warn, format!("more available: use --page-token {next_page_token} or --all"))
    });
    match context.screen.format {
        Format::Jsonl => {
            for item in &items {
                context.screen.print_json(&json::of(item)?)?;
            }
        }
        Format::Json => context.screen.print_json(&json::of(&whole(items, next_page_token))?)?,
        Format::Text if items.is_empty() => match lookup::elsewhere(&context.namespace, namespaces) {
            Some((what, command)) => {
                context.screen.say(&Line::default().and(Style::Warn, what));
                context.screen.say(&next::line(command));
            }
            None => context.screen.say(&Line::new(sought())),
        },
        Format::Text => context.screen.print(&lines(&items))?,
    }
    if let Some(more) = more {
        context.screen.say(&more);
    }
    Ok(Exit::OK)
}
