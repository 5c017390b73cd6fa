//! The section `research`: where the tool `research` looks besides the workspace.

use std::path::PathBuf;

use crate::ValueWithOrigin;

/// The section `research`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Research {
    /// Folders with documents, which every plan may search.
    pub roots: Vec<ValueWithOrigin<DocumentRoot>>,
    /// The search endpoint; `None`: the web is not searched.
    pub web: Option<ValueWithOrigin<WebSearch>>,
}

/// A folder with documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRoot {
    /// Its name, by which findings cite it.
    pub name: String,
    /// Where it is: an absolute path, without symbolic links once the settings are loaded.
    pub path: PathBuf,
}

/// A search endpoint that answers as SearXNG does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSearch {
    /// Its URL, to which the question is added.
    pub url: String,
    /// The network profile of calls that search the web, unless their step names another.
    pub profile: String,
}
