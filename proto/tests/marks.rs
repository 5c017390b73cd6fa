//! Requirements of the build on the marks `(belay.v1.text)`, and what it generates from them.

#[path = "../build/names.rs"]
mod names;
#[path = "../build/texts.rs"]
mod texts;

use std::collections::BTreeMap;

use belay_proto::{
    texts::{Text, Texts as _},
    v1::{self, execution_event::Kind},
};
use protox::{
    Compiler,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver},
};

const OPTIONS: &str = include_str!("../belay/v1/options.proto");

/// Source files in memory, by name.
struct Sources(BTreeMap<&'static str, String>);

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = self.0.get(name).ok_or_else(|| protox::Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

/// The generated code of a contract whose only method returns `Answer`.
fn generate(messages: &str) -> Result<String, String> {
    let contract = format!(
        "syntax = \"proto3\"; package belay.v1;
         import \"belay/v1/options.proto\"; import \"google/protobuf/struct.proto\"; import \"google/protobuf/duration.proto\";
         service Service {{ rpc Ask(Question) returns (Answer); }}
         message Question {{ string unmarked = 1; }}
         {messages}"
    );
    let mut resolver = ChainFileResolver::new();
    resolver.add(Sources([("belay/v1/options.proto", OPTIONS.into()), ("contract.proto", contract)].into()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("contract.proto").map_err(|error| format!("{error:?}"))?;
    texts::generate(&compiler.descriptor_pool())
}

#[test]
fn a_text_field_that_a_method_returns_has_to_be_marked() {
    let hint = |kinds: &str| format!("add `[(belay.v1.text) = …]`, one of {kinds}: see belay/v1/options.proto");
    let words = hint("TEXT_PLAIN, TEXT_WORDS, TEXT_JSON, TEXT_SCHEMA, TEXT_VALUE");
    let cases = [
        ("message Answer { string a = 1; }", format!("belay.v1.Answer.a: {words}")),
        ("message Answer { oneof one { string a = 1; } }", format!("belay.v1.Answer.a: {words}")),
        ("message Answer { optional string a = 1; }", format!("belay.v1.Answer.a: {words}")),
        (
            "message Answer { repeated In in = 1; message In { string a = 1; } }",
            format!("belay.v1.Answer.In.a: {words}"),
        ),
        (
            "message Answer { map<int32, In> in = 1; } message In { repeated string a = 1; }",
            format!("belay.v1.In.a: {words}"),
        ),
        ("message Answer { bytes a = 1; }", format!("belay.v1.Answer.a: {}", hint("TEXT_PLAIN, TEXT_EXACT"))),
        (
            "message Answer { map<string, string> a = 1; }",
            format!("belay.v1.Answer.a: {}", hint("TEXT_PLAIN, TEXT_LABELS")),
        ),
        ("message Answer { map<string, int32> a = 1; }", format!("belay.v1.Answer.a: {}", hint("TEXT_PLAIN"))),
        (
            "message Answer { google.protobuf.Value a = 1; }",
            "belay.v1.Answer.a: google.protobuf.Value can contain text that no mark describes".into(),
        ),
        (
            "message Answer { bytes a = 1 [(belay.v1.text) = TEXT_WORDS]; }",
            "belay.v1.Answer.a: `(belay.v1.text)` is Words, which is not for a field of this type".into(),
        ),
        (
            "message Answer { int32 a = 1 [(belay.v1.text) = TEXT_PLAIN]; }",
            "belay.v1.Answer.a: `(belay.v1.text)` is Plain, which is not for a field of this type".into(),
        ),
    ];
    for (messages, problem) in cases {
        assert_eq!(generate(messages), Err(problem), "{messages}");
    }
    let fine =
        "message Answer { int32 a = 1; string b = 2 [(belay.v1.text) = TEXT_PLAIN]; google.protobuf.Duration c = 3; }";
    assert_eq!(generate(fine).as_deref(), Ok(""), "nothing is visited in it, and requests are not marked");
}

#[test]
fn a_text_of_every_shape_is_visited() {
    let code = generate(
        "message Answer {
           string one = 1 [(belay.v1.text) = TEXT_WORDS];
           repeated string many = 2 [(belay.v1.text) = TEXT_WORDS];
           optional string maybe = 3 [(belay.v1.text) = TEXT_JSON];
           map<string, string> labels = 4 [(belay.v1.text) = TEXT_LABELS];
           map<string, In> named = 5 [(belay.v1.text) = TEXT_PLAIN];
           In type = 6;
           oneof choice { string text = 7 [(belay.v1.text) = TEXT_WORDS]; In in_part = 8; Empty empty = 9; }
           string schema = 10 [(belay.v1.text) = TEXT_SCHEMA];
           repeated string values = 11 [(belay.v1.text) = TEXT_VALUE];
           message In { Answer again = 1; }
           message Empty { bool a = 1; }
         }",
    )
    .unwrap();
    let expected = "impl Texts for crate::v1::Answer {
    fn texts(&mut self, each: Each<'_>) {
        let value = &mut self.one; each(Text::Words(value));
        for value in &mut self.many { each(Text::Words(value)); }
        if let Some(value) = &mut self.maybe { each(Text::Json(value)); }
        let value = &mut self.labels; each(Text::Labels(value));
        for value in self.named.values_mut() { value.texts(each); }
        if let Some(value) = &mut self.r#type { value.texts(each); }
        let value = &mut self.schema; each(Text::Schema(value));
        for value in &mut self.values { each(Text::Value(value)); }
        match &mut self.choice {
            Some(crate::v1::answer::Choice::Text(value)) => each(Text::Words(value)),
            Some(crate::v1::answer::Choice::InPart(value)) => value.texts(each),
            _ => {}
        }
    }
}
impl Texts for crate::v1::answer::In {
    fn texts(&mut self, each: Each<'_>) {
        if let Some(value) = &mut self.again { value.texts(each); }
    }
}
";
    assert_eq!(code, expected);
}

#[test]
fn the_texts_of_an_event_are_visited_and_its_names_are_not() {
    let tool = v1::ToolStep {
        tool: "tool".into(),
        arguments: Some(v1::Payload::of_json("arguments")),
        verbatim: vec!["verbatim".into()],
        ..Default::default()
    };
    let step = v1::StepSpec {
        id: "id".into(),
        title: "title".into(),
        description: "what for".into(),
        condition: "condition".into(),
        kind: Some(v1::step_spec::Kind::Tool(tool)),
        ..Default::default()
    };
    let plan =
        v1::Plan { id: "plan".into(), description: "description".into(), steps: vec![step], ..Default::default() };
    let labels = [("key".to_owned(), "value".to_owned())].into();
    let created = v1::ExecutionCreated { uid: "uid".into(), plan: Some(plan), labels, ..Default::default() };
    let mut event = v1::ExecutionEvent { kind: Some(Kind::ExecutionCreated(Box::new(created))), ..Default::default() };
    let mut visited = Vec::new();
    event.texts(&mut |text| {
        visited.push(match text {
            Text::Words(words) => format!("words {words}"),
            Text::Value(value) => format!("value {value}"),
            Text::Json(json) => format!("json {json}"),
            Text::Schema(schema) => format!("schema {schema}"),
            Text::Labels(labels) => format!("labels {labels:?}"),
        });
    });
    assert_eq!(
        visited,
        [
            "words description",
            "words title",
            "words condition",
            "schema ",
            "words what for",
            "json arguments",
            "labels {}",
            r#"labels {"key": "value"}"#
        ]
    );
}
