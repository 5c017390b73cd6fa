//! The readable text of HTML: one pass over it, in time and memory that grow with its length and nothing else, because pages come from strangers. Pure.
//!
//! Of the libraries, the small one takes ten seconds for 256 KiB of unclosed tags, and those that parse as browsers do bring many crates.

/// Elements whose content is not text.
const HIDDEN: [&str; 8] = ["script", "style", "template", "svg", "math", "iframe", "object", "noframes"];
/// Elements before and behind which there is an empty line, or only another line.
const PARAGRAPHS: [&str; 15] =
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "table", "pre", "blockquote", "figure", "title"];
const LINES: [&str; 22] = [
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "nav",
    "aside",
    "form",
    "fieldset",
    "li",
    "dt",
    "dd",
    "tr",
    "caption",
    "figcaption",
    "address",
    "details",
    "summary",
    "option",
    "body",
    "hr",
];
/// The longest name of a character reference.
const MAX_REFERENCE: usize = 16;
/// The longest link that is shown.
const MAX_LINK: usize = 2_000;

/// Characters that have names. A name that is not here stays as it is written.
const NAMED: [(&str, &str); 66] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("ensp", " "),
    ("emsp", " "),
    ("thinsp", " "),
    ("shy", ""),
    ("zwnj", ""),
    ("zwj", ""),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("hellip", "…"),
    ("mdash", "—"),
    ("ndash", "–"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("sbquo", "‚"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("bdquo", "„"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("bull", "•"),
    ("middot", "·"),
    ("euro", "€"),
    ("pound", "£"),
    ("yen", "¥"),
    ("cent", "¢"),
    ("sect", "§"),
    ("para", "¶"),
    ("deg", "°"),
    ("times", "×"),
    ("divide", "÷"),
    ("plusmn", "±"),
    ("minus", "−"),
    ("ne", "≠"),
    ("le", "≤"),
    ("ge", "≥"),
    ("frac12", "½"),
    ("larr", "←"),
    ("rarr", "→"),
    ("uarr", "↑"),
    ("darr", "↓"),
    ("check", "✓"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("ecirc", "ê"),
    ("agrave", "à"),
    ("aacute", "á"),
    ("ccedil", "ç"),
    ("ntilde", "ñ"),
    ("oacute", "ó"),
    ("iacute", "í"),
    ("aring", "å"),
    ("oslash", "ø"),
];

/// The readable text of a page.
pub(super) fn text(html: &str) -> String {
    let mut out = Out::default();
    let (mut rest, mut link) = (html, None);
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        out.push(before);
        rest = match markup(tag) {
            Markup::Text => {
                out.push("<");
                tag.get(1..).unwrap_or_default()
            }
            Markup::Skipped(rest) => rest,
            Markup::Tag(tag, rest) => {
                open_or_close(&mut out, &mut link, &tag);
                match HIDDEN.contains(&tag.name.as_str()) && !tag.closes && !tag.attributes.ends_with('/') {
                    true => behind_end_of(rest, &tag.name),
                    false => rest,
                }
            }
            // What is not closed is not text.
            Markup::Unfinished => "",
        };
    }
    out.push(rest);
    out.finish()
}

struct Tag<'a> {
    /// In lower case.
    name: String,
    closes: bool,
    attributes: &'a str,
}

enum Markup<'a> {
    /// A `<` that begins no markup.
    Text,
    /// A comment or a declaration, with the rest behind it.
    Skipped(&'a str),
    Tag(Tag<'a>, &'a str),
    Unfinished,
}

/// Reads what begins with `<`.
fn markup(text: &str) -> Markup<'_> {
    let behind = |end: Option<(usize, usize)>| match end {
        Some((at, length)) => Markup::Skipped(text.get(at + length..).unwrap_or_default()),
        None => Markup::Unfinished,
    };
    if text.starts_with("<!--") {
        return behind(text.find("-->").map(|at| (at, 3)));
    }
    if text.starts_with("<!") || text.starts_with("<?") {
        return behind(text.find('>').map(|at| (at, 1)));
    }
    let closes = text.starts_with("</");
    let from = if closes { 2 } else { 1 };
    let name = text.get(from..).unwrap_or_default();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return if closes { behind(text.find('>').map(|at| (at, 1))) } else { Markup::Text };
    }
    let Some(end) = end_of_tag(name) else { return Markup::Unfinished };
    let (inside, rest) = name.split_at(end);
    let length = inside.find(|c: char| c.is_ascii_whitespace() || c == '/').unwrap_or(inside.len());
    let (name, attributes) = inside.split_at(length);
    Markup::Tag(Tag { name: name.to_ascii_lowercase(), closes, attributes }, rest.get(1..).unwrap_or_default())
}

/// The place of the `>` that ends a tag: not one in the quotes of a value.
fn end_of_tag(text: &str) -> Option<usize> {
    let (mut quote, mut is_value) = (None, false);
    for (at, byte) in text.bytes().enumerate() {
        match quote {
            Some(open) if byte == open => (quote, is_value) = (None, false),
            Some(_) => {}
            None if byte == b'>' => return Some(at),
            None if is_value && matches!(byte, b'"' | b'\'') => quote = Some(byte),
            None if !byte.is_ascii_whitespace() => is_value = byte == b'=',
            None => {}
        }
    }
    None
}

/// What stands behind the end of an element whose content is not read.
fn behind_end_of<'a>(mut rest: &'a str, name: &str) -> &'a str {
    while let Some(at) = rest.find("</") {
        rest = rest.get(at + 2..).unwrap_or_default();
        let (found, behind) = (rest.get(..name.len()), rest.get(name.len()..).unwrap_or_default());
        let is_end = !behind.starts_with(|next: char| next.is_ascii_alphanumeric());
        if is_end && found.is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            return behind.find('>').and_then(|end| behind.get(end + 1..)).unwrap_or_default();
        }
    }
    ""
}

fn open_or_close(out: &mut Out, link: &mut Option<String>, tag: &Tag<'_>) {
    let name = tag.name.as_str();
    if PARAGRAPHS.contains(&name) {
        out.line_break(2);
    } else if LINES.contains(&name) || name == "br" {
        out.line_break(1);
    }
    match (name, tag.closes) {
        ("pre" | "textarea", closes) => out.is_preformatted = !closes,
        ("li", false) => out.push("- "),
        ("td" | "th", true) => out.space(),
        ("a", false) => {
            let leads = |url: &String| {
                let scheme = url.trim_start().to_ascii_lowercase();
                !url.starts_with('#') && !scheme.starts_with("javascript:") && !scheme.starts_with("data:")
            };
            let url = attribute(tag.attributes, "href").filter(|url| !url.is_empty() && url.len() <= MAX_LINK);
            *link = url.filter(leads);
        }
        ("a", true) => {
            if let Some(url) = link.take() {
                out.push(&format!(" ({url})"));
            }
        }
        ("img", false) => {
            if let Some(alt) = attribute(tag.attributes, "alt").filter(|alt| !alt.trim().is_empty()) {
                out.push(&format!(" [{alt}] "));
            }
        }
        _ => {}
    }
}

/// The value of an attribute as it is written, with its references.
fn attribute(attributes: &str, name: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '=').unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        let Some(value) = behind.trim_start().strip_prefix('=').map(str::trim_start) else {
            rest = behind;
            continue;
        };
        let (value, behind) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let value = value.get(1..).unwrap_or_default();
                value.split_once(quote).unwrap_or((value, ""))
            }
            _ => value.split_at(value.find(|c: char| c.is_ascii_whitespace()).unwrap_or(value.len())),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = behind;
    }
}

/// The text so far, without the breaks at its end.
#[derive(Default)]
struct Out {
    text: String,
    line_breaks: usize,
    has_space: bool,
    is_preformatted: bool,
}

impl Out {
    fn line_break(&mut self, lines: usize) {
        self.line_breaks = self.line_breaks.max(lines);
    }

    fn space(&mut self) {
        self.has_space = true;
    }

    /// Adds text of the page, whose references are resolved.
    fn push(&mut self, raw: &str) {
        let mut rest = raw;
        while let Some(at) = rest.find('&') {
            let (before, reference) = rest.split_at(at);
            self.add(before);
            rest = match referenced(reference) {
                Some((text, behind)) => {
                    self.add(&text);
                    behind
                }
                None => {
                    self.add("&");
                    reference.get(1..).unwrap_or_default()
                }
            };
        }
        self.add(rest);
    }

    fn add(&mut self, text: &str) {
        for character in text.chars() {
            if self.is_preformatted {
                match character {
                    '\r' => continue,
                    _ if self.line_breaks > 0 && character == '\n' => continue,
                    _ => self.settle(),
                }
                self.text.push(character);
            } else if character.is_whitespace() {
                self.has_space = true;
            } else if !character.is_control() {
                self.settle();
                self.text.push(character);
            }
        }
    }

    /// Writes the break before another character.
    fn settle(&mut self) {
        if !self.text.is_empty() {
            match self.line_breaks {
                0 if self.has_space && !self.text.ends_with([' ', '\n']) => self.text.push(' '),
                0 => {}
                lines => self.text.extend(std::iter::repeat_n('\n', lines)),
            }
        }
        (self.line_breaks, self.has_space) = (0, false);
    }

    fn finish(mut self) -> String {
        self.text.truncate(self.text.trim_end().len());
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text
    }
}

/// The character for which a reference stands, and the rest behind it. `None`: it is none.
fn referenced(text: &str) -> Option<(String, &str)> {
    let body = text.get(1..)?;
    let end = body.bytes().take(MAX_REFERENCE).position(|byte| byte == b';')?;
    let (name, rest) = (body.get(..end)?, body.get(end + 1..)?);
    let shown = match name.strip_prefix('#') {
        Some(number) => {
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code).filter(|character| !character.is_control() || *character == '\n')?.to_string()
        }
        None => NAMED.iter().find(|(known, _)| *known == name)?.1.to_owned(),
    };
    Some((shown, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_a_person_sees_it() {
        let page = r##"<!DOCTYPE html><html><head><title>Guide &amp; more</title><style>p { a: "</p>" }</style>
            <script>if (a < b) document.write("<p>no</p>")</script></head>
            <body><!-- not <b>this</b> --><h1>First</h1>
            <p>One   <b>two</b>&nbsp;three<br>four &#8364; &#x41; &unknown; a < b &amp;lt;</p>
            <ul><li>a <li>b <a href="/x?y=1&amp;z=2" title='a>b'>link</a></ul>
            <a href="javascript:x()">none</a> <a href="#top">top</a><img src=x alt="A picture">
            <table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>
            <pre>
  kept
    as &lt;it&gt; is</pre><noscript>shown</noscript></body></html>"##;
        let expected = "Guide & more\n\nFirst\n\nOne two three\nfour € A &unknown; a < b &lt;\n\n- a\n- b link (/x?y=1&z=2)\n\nnone top [A picture]\n\n1 2\n3\n\n  kept\n    as <it> is\n\nshown\n";
        assert_eq!(text(page), expected);
        assert_eq!((text(""), text("plain"), text("<p> </p>")), (String::new(), "plain\n".to_owned(), String::new()));
    }

    #[test]
    fn what_is_not_closed_hides_only_itself() {
        for (page, expected) in [
            ("a<script>b", "a\n"),
            ("a<!-- b", "a\n"),
            ("a<b title='x", "a\n"),
            ("a</", "a\n"),
            ("a<", "a<\n"),
            ("1 < 2 & 3", "1 < 2 & 3\n"),
            ("a<SCRIPT>b</scripty></Script >c", "ac\n"),
            ("&#0;&#xD800;&#99999999999;&;", "&#0;&#xD800;&#99999999999;&;\n"),
            ("a<svg/>b", "ab\n"),
        ] {
            assert_eq!(text(page), expected, "{page}");
        }
    }

    /// A page that is made to be slow takes no longer than another of its length: each of these would take hours with a search for every end.
    #[test]
    fn pages_of_strangers_take_as_long_as_others() {
        let pieces = [
            "<a>",
            "<a href='",
            "</a",
            "<",
            "<!--",
            "<script>",
            "</script",
            "&",
            "&amp",
            "<pre>",
            "<p ",
            "<li><ul>",
            "<a href=x>",
        ];
        for piece in pieces {
            let page = piece.repeat((1 << 20) / piece.len());
            assert!(text(&page).len() <= 2 * page.len(), "{piece}");
        }
    }
}
