//! Lists where the tool `research` looks.

use crate::{Origin, Research, Row};

/// Each folder with documents, and the search endpoint with its network profile.
pub(crate) fn rows(research: &Research) -> Vec<Row> {
    let Research { roots, web } = research;
    let none = |key: &str| vec![Row { key: key.to_owned(), value: "none".to_owned(), origin: Origin::Default }];
    let roots: Vec<Row> = roots
        .iter()
        .map(|root| Row {
            key: format!("research.roots.{}", root.value.name),
            value: root.value.path.display().to_string(),
            origin: root.origin.clone(),
        })
        .collect();
    let web = web.iter().flat_map(|web| {
        let row = |key: &str, value: &str| Row {
            key: format!("research.web.{key}"),
            value: value.to_owned(),
            origin: web.origin.clone(),
        };
        [row("url", &web.value.url), row("profile", &web.value.profile)]
    });
    let web: Vec<Row> = web.collect();
    let or = |rows: Vec<Row>, key| if rows.is_empty() { none(key) } else { rows };
    [or(roots, "research.roots"), or(web, "research.web")].concat()
}
