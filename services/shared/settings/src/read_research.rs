//! Reads the section `research`.

use std::path::Path;

use belay_network::{Profiles, is_profile_name};
use belay_yaml::{Node, Reader, Value, nearest, shown};

use crate::{
    DocumentRoot, Research, ValueWithOrigin, WebSearch,
    paths::{absolute, too_much},
    read_values::filled_text,
};

const RESEARCH: &str = "roots web";
const ROOT: &str = "name path";
const WEB: &str = "url profile";

/// The most folders with documents: each is an index.
const MAX_ROOTS: usize = 20;

/// Reads the section. What is invalid adds violations and is left out.
pub(crate) fn research(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>) -> Research {
    let mut research = Research::default();
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "roots" => {
                research.roots = reader.list(node, field, |reader, node, field| root(reader, node, field, home));
                if research.roots.len() > MAX_ROOTS {
                    let count = research.roots.len();
                    reader.refuse(field, node.line, format!("has {count} folders, but the limit is {MAX_ROOTS}"));
                }
            }
            "web" => research.web = web(reader, node, field),
            _ => return Err(RESEARCH),
        }
        Ok(())
    });
    for (n, root) in research.roots.iter().enumerate() {
        if research.roots[..n].iter().any(|earlier| earlier.value.name == root.value.name) {
            let field = format!("{field}.roots[{n}].name");
            let message = format!("`{}` is the name of an earlier folder: choose another one", shown(&root.value.name));
            reader.refuse(&field, reader.line_of(&field), message);
        }
    }
    research
}

fn root(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>) -> Option<ValueWithOrigin<DocumentRoot>> {
    let (mut name, mut path) = (None, None);
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "name" => {
                name = filled_text(reader, node, field);
                if name.as_deref().is_some_and(|name| !is_profile_name(name)) {
                    let rule = "is not a name: it has 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit";
                    reader.refuse(field, node.line, rule);
                }
            }
            "path" => match reader.text(node, field).map(|text| absolute(&text, home)) {
                Some(Ok(found)) => match too_much(&found, home) {
                    Some(why) => reader.refuse(field, node.line, format!("`{}` {}", found.display(), worded(why))),
                    None => path = Some(found),
                },
                Some(Err(why)) => reader.refuse(field, node.line, why),
                None => {}
            },
            _ => return Err(ROOT),
        }
        Ok(())
    });
    let required =
        [("name", "by which findings cite the folder"), ("path", "the folder with documents, such as /srv/handbook")];
    require(reader, node, field, &required);
    let (name, path) = (name?, path?);
    Some(ValueWithOrigin::on_line(DocumentRoot { name, path }, node.line))
}

fn web(reader: &mut Reader, node: &Node, field: &str) -> Option<ValueWithOrigin<WebSearch>> {
    let (mut url, mut profile) = (None, None);
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "url" => url = filled_text(reader, node, field),
            "profile" => profile = filled_text(reader, node, field),
            _ => return Err(WEB),
        }
        Ok(())
    });
    let required = [
        ("url", "the search endpoint, such as https://search.example.com/search"),
        ("profile", "the network profile by which the endpoint, and the pages that it finds, are reached"),
    ];
    require(reader, node, field, &required);
    let (url, profile) = (url?, profile?);
    Some(ValueWithOrigin::on_line(WebSearch { url, profile }, node.line))
}

fn require(reader: &mut Reader, node: &Node, field: &str, keys: &[(&str, &str)]) {
    if !matches!(node.value, Value::Map(_)) {
        return;
    }
    for (key, what) in keys {
        if !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(field, node.line, format!("has no `{key}`: add it, {what}"));
        }
    }
}

/// Why a folder cannot be one of documents, in the words of what commands must not see.
pub(crate) fn worded(why: &str) -> String {
    why.replace("of one toolchain", "of the documents")
}

/// Refuses a search endpoint whose network profile does not exist.
pub(crate) fn profile_of_web(reader: &mut Reader, research: &Research, profiles: &Profiles) {
    let Some(web) = &research.web else { return };
    let name = &web.value.profile;
    if profiles.find(name).is_some_and(|profile| profile.leaves_this_machine()) {
        return;
    }
    let known: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    let hint = nearest(name, known.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let field = "research.web.profile";
    let message = if profiles.find(name).is_some() {
        format!("the network profile `{}` has no hosts: use one whose rules have the search endpoint", shown(name))
    } else {
        format!("there is no network profile `{}`: use one of {}{hint}", shown(name), known.join(", "))
    };
    reader.refuse(field, reader.line_of(field), message);
}

#[cfg(test)]
mod tests {
    use belay_yaml::Violation;

    use crate::File;

    const GOOD: &str = "
network:
  profiles:
    search: {rules: [{host: search.example.com, methods: [GET]}]}
research:
  roots:
    - {name: handbook, path: /srv/handbook}
    - {name: api, path: /srv/api}
  web: {url: 'https://search.example.com/search', profile: search}
";

    fn refused(text: &str) -> String {
        let violations = File::parse(text, Some(std::path::Path::new("/home/me"))).expect_err(text);
        let line = |Violation { field, line, message }: &Violation| format!("{line} {field}: {message}\n");
        violations.iter().map(line).collect()
    }

    /// S3-13.
    #[test]
    fn folders_and_the_endpoint_are_read_with_their_lines() {
        let research = File::parse(GOOD, None).unwrap().research;
        assert_eq!(research.roots[0].value.name, "handbook");
        assert_eq!(research.roots[1].value.path.to_str(), Some("/srv/api"));
        assert_eq!(research.roots[1].origin, crate::Origin::Line(8));
        let web = research.web.unwrap().value;
        assert_eq!((web.url.as_str(), web.profile.as_str()), ("https://search.example.com/search", "search"));
        assert_eq!(File::parse("", None).unwrap().research, crate::Research::default());
    }

    #[test]
    fn a_mistake_is_refused_by_field() {
        for (right, wrong, says) in [
            ("  roots:", "  rots:", "6 research.rots: there is no key `rots` here; did you mean `roots`?"),
            ("name: api", "name: handbook", "research.roots[1].name: `handbook` is the name of an earlier folder"),
            ("name: api", "name: 'a b'", "research.roots[1].name: is not a name"),
            ("name: api, ", "", "research.roots[1]: has no `name`"),
            ("path: /srv/api", "path: srv/api", "research.roots[1].path: `srv/api` must be an absolute path"),
            ("path: /srv/api", "path: /srv/../api", "research.roots[1].path: `/srv/../api` must be an absolute path"),
            ("path: /srv/api", "path: /", "`/` is the whole machine: name the directory of the documents"),
            ("path: /srv/api", "path: '~'", "`/home/me` is, or contains, a home directory"),
            ("path: /srv/api", "path: /etc/ssh", "`/etc/ssh` is, or contains, secrets of this machine"),
            ("url: 'https://search.example.com/search', ", "", "research.web: has no `url`"),
            (", profile: search}", "}", "research.web: has no `profile`"),
            (", profile: search}", ", profile: serch}", "there is no network profile `serch`: use one of"),
            (", profile: search}", ", profile: loopback}", "the network profile `loopback` has no hosts"),
        ] {
            let text = refused(&GOOD.replacen(right, wrong, 1));
            assert!(text.contains(says), "{wrong}: {text}");
        }
        let many: String = (0..21).map(|n| format!("  - {{name: r{n}, path: /srv/{n}}}\n")).collect();
        let text = refused(&format!("research:\n  roots:\n{many}"));
        assert!(text.contains("has 21 folders, but the limit is 20"), "{text}");
    }
}
