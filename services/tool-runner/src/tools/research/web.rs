//! The web: a search endpoint that answers as SearXNG does, and pages that it names. Every request goes the way of `fetch_url`.

use std::sync::{Arc, Mutex, PoisonError};

use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use belay_sqlite::Lane;
use belay_workspace::RelPath;
use serde::Deserialize;
use serde_json::Value;

use super::{
    depth::Bounds,
    findings::{Finding, MAX_EXTRACT, best, extract, worth},
    found::{Found, Problem, asked},
    index::{Content, Document, Index, IndexError},
    left_out::{Place, Reason},
    question::Question,
    walk::Reading,
    words::cut,
};
use crate::{
    ToolFailure, ToolResult,
    digests::content_digest,
    tools::{
        fetch_url::{fetch, text_at},
        http::{HttpUrl, Session, SessionWork, failed_status, is_failed},
    },
};

/// The most bytes of the endpoint's answer, and of a page.
const MAX_ANSWER: usize = 4 << 20;
const MAX_PAGE: usize = 1 << 20;
/// The most bytes of a question that is sent: longer ones are no help to a search endpoint, and do not fit into a URL.
const MAX_QUESTION: usize = 1_000;
/// The most bytes of a title.
const MAX_TITLE: usize = 200;
/// How much a place in the endpoint's list counts: as one in the list of all words.
const WEIGHT: f64 = 2.0;

/// The search of the web by one call.
pub(super) struct WebSearch {
    pub(super) endpoint: HttpUrl,
    pub(super) question: Arc<Question>,
    pub(super) bounds: Bounds,
    pub(super) reading: Reading,
    /// Where pages are looked through.
    pub(super) lane: Lane,
    /// What has been found, also by a search that does not come to its end.
    pub(super) found: Arc<Mutex<Found>>,
}

/// What the endpoint answers. Only what is used is read.
#[derive(Deserialize)]
struct Answer {
    results: Vec<Value>,
}

/// A result of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WebResult {
    url: String,
    title: String,
    content: String,
}

impl SessionWork for WebSearch {
    async fn work(self, session: &mut Session) -> ToolResult {
        let mut results: Vec<WebResult> = Vec::new();
        for question in questions(&self.question).into_iter().take(self.bounds.searches) {
            for result in self.searched(session, &question).await? {
                if results.len() < self.bounds.results && !results.iter().any(|known| known.url == result.url) {
                    results.push(result);
                }
            }
        }
        self.cite_results(&results);
        let mut pages = Vec::new();
        for result in &results {
            if pages.len() == self.bounds.pages {
                break;
            }
            pages.extend(self.page(session, result).await);
        }
        let (found, question) = (Arc::clone(&self.found), Arc::clone(&self.question));
        let (bounds, reading) = (self.bounds, self.reading.clone());
        self.lane.run(move || cite_pages(&found, &pages, (&question, &bounds), &reading)).await?;
        Ok(Value::Null)
    }
}

/// A page that was read.
struct Page {
    /// The URL that its result names.
    url: String,
    /// The URL that was answered, after redirects.
    answered: String,
    title: String,
    text: String,
}

impl WebSearch {
    /// Changes what has been found.
    fn found<T>(&self, change: impl FnOnce(&mut Found) -> T) -> T {
        change(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the endpoint.
    async fn searched(&self, session: &mut Session, question: &str) -> Result<Vec<WebResult>, ToolFailure> {
        let url = self.endpoint.with_parameter("q", question).with_parameter("format", "json");
        let (url, answered) = fetch(session, url, MAX_ANSWER).await?;
        if is_failed(answered.status) {
            return Err(failed_status("GET", &url, &answered));
        }
        results_of(&answered.body).map_err(|why| {
            let message = format!(
                "The search endpoint `{}` {why}: it has to answer `format=json` as SearXNG does ({{\"results\": [{{\"url\", \"title\", \"content\"}}]}}), where `search.formats` has \
                 `json`.",
                self.endpoint
            );
            ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)
        })
    }

    /// Cites results as the endpoint describes them.
    fn cite_results(&self, results: &[WebResult]) {
        self.found(|found| {
            found.results = results.len() as u64;
            for (place, result) in results.iter().enumerate() {
                // One that is not described has its title.
                let extract = if result.content.is_empty() { &result.title } else { &result.content };
                found.findings.push(Finding {
                    place: Place::Web,
                    at: result.url.clone(),
                    title: Some(result.title.clone()).filter(|title| !title.is_empty()),
                    lines: None,
                    digest: content_digest(extract.as_bytes()),
                    extract: extract.clone(),
                    form: None,
                    score: worth(WEIGHT, place),
                });
            }
        });
    }

    /// Reads a page; `None` where that is not possible, which is among what was left out.
    async fn page(&self, session: &mut Session, result: &WebResult) -> Option<Page> {
        let url = match HttpUrl::parse(&result.url) {
            Ok(url) => url,
            Err(problem) => {
                let shown = format!("`{}` {problem}", belay_text::shown(&result.url, MAX_TITLE));
                self.found(|found| {
                    found.left_out.add(&Place::Web, Reason::UrlNotUsable, result.url.clone());
                    found.left_out.say_why(&Place::Web, Reason::UrlNotUsable, shown);
                });
                return None;
            }
        };
        let read = match fetch(session, url, MAX_PAGE).await {
            Ok((url, answered)) => text_at(&url, answered),
            Err(failure) => Err(failure),
        };
        match read {
            Ok(mut read) => {
                let mut text = |member: &str| match read[member].take() {
                    Value::String(text) => text,
                    _ => String::new(),
                };
                self.found(|found| found.pages += 1);
                Some(Page {
                    url: result.url.clone(),
                    answered: text("url"),
                    title: result.title.clone(),
                    text: text("text"),
                })
            }
            Err(failure) => {
                self.found(|found| {
                    found.left_out.add(&Place::Web, Reason::PageFailed, result.url.clone());
                    found.left_out.say_why(&Place::Web, Reason::PageFailed, failure.message);
                });
                None
            }
        }
    }
}

/// Cites what the pages say about the question, in place of how the endpoint describes them.
fn cite_pages(
    found: &Mutex<Found>,
    pages: &[Page],
    (question, bounds): (&Question, &Bounds),
    reading: &Reading,
) -> Result<(), ToolFailure> {
    let failed = |error: IndexError| Problem::from(error).into_failure();
    let index = Index::in_memory().map_err(failed)?;
    let path = |at: usize| RelPath::from_bytes(format!("page{at}").as_bytes());
    for (at, page) in pages.iter().enumerate() {
        let Some(path) = path(at) else { continue };
        let digest = content_digest(page.text.as_bytes());
        let content = Content::Text(page.text.as_bytes(), &digest);
        index.add(Document { path: &path, state: "", size: page.text.len() as u64, content }).map_err(failed)?;
    }
    let lists = asked(&index, question, bounds, reading).map_err(Problem::into_failure)?;
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    for candidate in best(lists, bounds.findings) {
        let at = (0..pages.len()).find(|at| path(*at).is_some_and(|path| path.as_bytes() == candidate.hit.path));
        let Some(page) = at.map(|at| &pages[at]) else { continue };
        let Some((extract, lines)) = extract(page.text.as_bytes(), &candidate.hit, question) else { continue };
        let described = |finding: &Finding| finding.at == page.url && finding.form.is_none();
        // The endpoint's own opinion of the page counts as well.
        let score = match found.findings.iter().position(described) {
            Some(at) => found.findings.remove(at).score,
            None => 0.0,
        };
        found.findings.push(Finding {
            place: Place::Web,
            at: page.answered.clone(),
            title: Some(page.title.clone()).filter(|title| !title.is_empty()),
            lines: Some(lines),
            digest: candidate.hit.digest,
            extract,
            form: Some(candidate.form),
            score: score + candidate.score,
        });
    }
    Ok(())
}

/// The question as the endpoint is asked it: as it is, and its telling words alone.
fn questions(question: &Question) -> Vec<String> {
    let cut_to = |text: &str| text[..cut(text.as_bytes(), MAX_QUESTION)].to_owned();
    let (whole, words) = (cut_to(&question.text), cut_to(&question.telling().join(" ")));
    if words.is_empty() || words == whole { vec![whole] } else { vec![whole, words] }
}

/// The results in an answer. One that names no page is left out; all other members, and results of other kinds, are not read.
fn results_of(body: &[u8]) -> Result<Vec<WebResult>, String> {
    let Answer { results } = serde_json::from_slice(body)
        .map_err(|error| format!("has answered with what is no JSON of search results ({error})"))?;
    let result = |result: Value| {
        let text = |member: &str, most: usize| {
            let text = result[member].as_str().unwrap_or_default();
            let words: Vec<&str> = text.split_whitespace().collect();
            let text = words.join(" ");
            text[..cut(text.as_bytes(), most)].to_owned()
        };
        // A part of a page is read with the page.
        let url = result["url"].as_str()?.split('#').next()?.to_owned();
        let is_page = url.starts_with("https://") || url.starts_with("http://");
        is_page.then(|| WebResult { url, title: text("title", MAX_TITLE), content: text("content", MAX_EXTRACT) })
    };
    Ok(results.into_iter().filter_map(result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::research::depth::Depth;

    /// S3-13: a page that was read is cited with what stands in it; what the endpoint says of it counts for its place.
    #[test]
    fn pages_take_the_place_of_their_descriptions() {
        let question = Question::new("lost calls");
        let bounds = Depth::Deep.bounds(std::time::Duration::from_secs(60));
        let described = |url: &str| Finding {
            place: Place::Web,
            at: url.to_owned(),
            title: None,
            lines: None,
            digest: String::new(),
            extract: "described".to_owned(),
            form: None,
            score: 0.01,
        };
        let found = Mutex::new(Found {
            findings: vec![described("https://a.example/"), described("https://b.example/")],
            ..Found::default()
        });
        let page = |url: &str, text: &str| Page {
            url: url.to_owned(),
            answered: format!("{url}moved"),
            title: "T".to_owned(),
            text: text.to_owned(),
        };
        let pages = [
            page("https://a.example/", "# Title\n\nLost calls run again.\n"),
            page("https://b.example/", "nothing of it\n"),
        ];
        cite_pages(&found, &pages, (&question, &bounds), &Reading::default()).unwrap();
        let findings = found.into_inner().unwrap().findings;
        let cited: Vec<_> =
            findings.iter().map(|finding| (finding.at.as_str(), finding.extract.as_str(), finding.lines)).collect();
        assert_eq!(
            cited,
            [
                ("https://b.example/", "described", None),
                ("https://a.example/moved", "Lost calls run again.", Some((3, 3)))
            ]
        );
        assert_eq!(findings[1].digest, content_digest(pages[0].text.as_bytes()));
        assert!(findings[1].score > findings[0].score);
    }

    #[test]
    fn results_are_read_as_searxng_writes_them() {
        let body = br#"{"query": "q", "results": [
            {"url": "https://a.example/x#part", "title": " A\n page ", "content": "about  it", "engine": "e", "score": 1.5},
            {"url": "magnet:?x", "title": "no page"}, {"title": "none"}, 7, {"url": 7},
            {"url": "http://b.example/", "title": null}
        ], "answers": []}"#;
        let result = |url: &str, title: &str, content: &str| WebResult {
            url: url.into(),
            title: title.into(),
            content: content.into(),
        };
        let expected = [result("https://a.example/x", "A page", "about it"), result("http://b.example/", "", "")];
        assert_eq!(results_of(body).unwrap(), expected);
        for bad in ["", "<html>", "[]", "{}", r#"{"results": {}}"#, r#"{"results": ["#] {
            assert!(results_of(bad.as_bytes()).unwrap_err().contains("no JSON of search results"), "{bad}");
        }
        let long = serde_json::json!({"results": [{"url": "https://a.example/", "title": "é".repeat(5000), "content": "x ".repeat(5000)}]});
        let read = results_of(long.to_string().as_bytes()).unwrap();
        assert!(read[0].title.len() <= MAX_TITLE && read[0].content.len() <= MAX_EXTRACT);
    }

    #[test]
    fn a_question_is_asked_as_it_is_and_by_its_words() {
        let of = |text: &str| questions(&Question::new(text));
        assert_eq!(of(" How does a lock end? "), ["How does a lock end?", "lock end"]);
        assert_eq!(of("lock"), ["lock"]);
        assert_eq!(of("🦀"), ["🦀"]);
        assert!(of(&"é ".repeat(20_000)).iter().all(|question| question.len() <= MAX_QUESTION));
    }
}
