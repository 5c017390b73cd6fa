//! The samples of each format: their plans and lists stand beside them and are accepted, and no key of them is lost.
//!
//! `BELAY_UPDATE=1 cargo test -p belay-converters --test samples` writes the plans and the lists.

mod support;

use std::{env, fs, path::PathBuf};

use belay_converters::{Conversion, Format, convert};
use support::{accepted, dotted, is_at_or_above, lost_keys, mappings, outcome, tree};

/// Each sample: its format, and its file in `samples`.
const SAMPLES: [(Format, &str); 7] = [
    (Format::Github, "github/ci.yml"),
    (Format::Github, "github/called.yml"),
    (Format::Github, "github/handlers.yml"),
    (Format::Conductor, "conductor/order.json"),
    (Format::Conductor, "conductor/branches.json"),
    (Format::Argo, "argo/pipeline.yaml"),
    (Format::Argo, "argo/approval.yaml"),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("samples").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text that the program prints on standard error, apart from its first line.
fn lines(conversion: &Conversion) -> String {
    conversion.left_out.iter().map(|entry| format!("{entry}\n")).collect()
}

#[test]
fn samples_have_the_plans_and_lists_beside_them() {
    for (format, name) in SAMPLES {
        let text = read(name);
        assert_eq!(Format::of(&text), Some(format), "{name}");
        let stem = name.split_once('/').unwrap().1.split('.').next().unwrap();
        let conversion = accepted(format, &text, stem).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let base = name.rsplit_once('.').unwrap().0;
        for (ending, made) in [("plan.yaml", conversion.plan.to_yaml().unwrap()), ("left-out.txt", lines(&conversion))]
        {
            let file = format!("{base}.{ending}");
            if env::var_os("BELAY_UPDATE").is_some() {
                fs::write(path(&file), &made).unwrap();
            }
            assert_eq!(made, fs::read_to_string(path(&file)).unwrap_or_default(), "{file}: BELAY_UPDATE=1 writes it");
        }
    }
}

/// An invented key, anywhere, is in the list or in the plan, or refuses the document.
#[test]
fn no_unknown_key_is_lost() {
    let mut lost = Vec::new();
    for (format, name) in SAMPLES {
        let lost_there = lost_keys(format, &tree(&read(name)));
        lost.extend(lost_there.into_iter().filter(|path| !NOTHING_THERE.iter().any(|nothing| path.contains(nothing))));
    }
    assert_eq!(lost, [""; 0], "`invented` is lost there");
}

/// A key that is taken away changes the plan or the list: none is read for nothing.
#[test]
fn no_known_key_is_lost() {
    let mut lost = Vec::new();
    for (format, name) in SAMPLES {
        let original = tree(&read(name));
        let before = outcome(format, &original);
        let mut pointers = Vec::new();
        mappings(&original, "", &mut pointers);
        for pointer in pointers {
            let keys: Vec<String> = original.pointer(&pointer).unwrap().as_object().unwrap().keys().cloned().collect();
            for key in keys {
                let mut changed = original.clone();
                changed.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().remove(&key);
                let is_needless = NEEDLESS.iter().any(|(of, needless)| *of == format && (*needless == key));
                let path = dotted(&pointer.trim_start_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>());
                let is_needless =
                    is_needless || NOTHING_THERE.iter().any(|nothing| format!("{path}.{key}").contains(nothing));
                let covered = before
                    .as_ref()
                    .is_ok_and(|(_, list)| list.iter().any(|line| is_at_or_above(line, &format!("{path}.{key}"))));
                if !is_needless && !covered && outcome(format, &changed) == before {
                    lost.push(format!("{name}: {path}.{key}"));
                }
            }
        }
    }
    assert_eq!(lost, [""; 0], "these can be taken away unseen");
}

/// Mappings that say nothing, or nothing any more: an entry that a `when` leaves out, and that a value is supplied by a person.
const NOTHING_THERE: [&str; 2] =
    ["templates[0].steps[4][0].withItems[0]", "templates[1].outputs.parameters[0].valueFrom"];

/// Keys that say what is so anyway: the kind of a document, names that only tell things apart, and defaults.
const NEEDLESS: [(Format, &str); 12] = [
    (Format::Argo, "apiVersion"),
    (Format::Argo, "kind"),
    (Format::Argo, "name"),
    (Format::Argo, "spec"),
    (Format::Argo, "supplied"),
    (Format::Argo, "factor"),
    (Format::Conductor, "name"),
    (Format::Conductor, "type"),
    (Format::Conductor, "evaluatorType"),
    (Format::Conductor, "caseExpression"),
    (Format::Github, "required"),
    (Format::Github, "type"),
];

#[test]
fn what_cannot_be_converted_says_why() {
    let job = |rest: &str| format!("on: push\njobs:\n{rest}");
    let many: String = (0..100_000).map(|number| format!("{number}, ")).collect();
    let step = "    runs-on: x\n    steps: [{run: 'true'}]\n";
    let large_matrix = job(&format!("  a:\n    strategy:\n      matrix:\n        n: [{many}]\n{step}"));
    let circle = "kind: Workflow\nspec:\n  entrypoint: m\n  templates:\n  - name: m\n    dag:\n      tasks:\n      - {name: a, template: m, depends: b}
      - {name: b, template: m, depends: a}\n";
    let refused = |format, text: &str| convert(format, text, "x").expect_err(text).to_string();
    for (format, text, words) in [
        (
            Format::Github,
            job(&format!("  a:\n    needs: b\n{step}  b:\n    needs: [a]\n{step}")),
            "line 2: jobs: these jobs need each other in a circle",
        ),
        (
            Format::Github,
            job(&format!("  a:\n    needs: nobody\n{step}")),
            "line 4: jobs.a.needs: there is no job `nobody`",
        ),
        (Format::Github, "on: push\njobs:\n\ta: 1\n".to_owned(), "line 3: invalid YAML"),
        (Format::Github, large_matrix, "line 5: jobs.a.strategy.matrix: has 100000 combinations"),
        (
            Format::Github,
            job("  a:\n    runs-on: x\n    steps: [{name: neither}]\n"),
            "line 5: jobs.a.steps[0]: has to have either `run` or `uses`",
        ),
        (
            Format::Github,
            job(&format!("  a:\n    strategy:\n      matrix: {{os: [x], exclude: [{{ox: x}}]}}\n{step}")),
            "line 5: jobs.a.strategy.matrix.exclude[0].ox: is no dimension of the matrix",
        ),
        (Format::Github, "on: push\njobs: []\n".to_owned(), "has no job"),
        (Format::Github, "on: push\n".to_owned(), "has no `jobs`"),
        (Format::Github, "just text".to_owned(), "has to be a mapping"),
        (Format::Conductor, "{\"tasks\": [}".to_owned(), "is not JSON"),
        (Format::Conductor, "{\"name\": \"x\"}".to_owned(), "has no `tasks`"),
        (Format::Conductor, "{\"tasks\": [{\"type\": \"SIMPLE\"}]}".to_owned(), "tasks[0]: has no `taskReferenceName`"),
        (Format::Conductor, "[{}, {}]".to_owned(), "is a list of 2 workflows"),
        (Format::Argo, "kind: Pod\nspec: {}\n".to_owned(), "line 1: kind: `Pod` is no workflow"),
        (Format::Argo, "kind: Workflow\nspec:\n  templates: []\n".to_owned(), "has no `entrypoint`"),
        (Format::Argo, circle.to_owned(), "these tasks depend on each other in a circle: a, b"),
    ] {
        let error = refused(format, &text);
        assert!(error.contains(words), "{text:.200}: {error}");
    }
}

/// A sample with a line less, twice, or cut short is refused, or its plan is accepted.
#[test]
fn damaged_samples_become_plans_or_are_refused() {
    for (format, name) in SAMPLES {
        let text = read(name);
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let without: Vec<&str> = [&lines[..at], &lines[at + 1..]].concat();
            let twice: Vec<&str> = [&lines[..=at], &lines[at..]].concat();
            let moved = [&lines[..at], &[lines[at].trim_start()], &lines[at + 1..]].concat();
            // One damage a line, in turns: each kind is at many places.
            let damaged = match at % 4 {
                0 => without,
                1 => twice,
                2 => moved,
                _ => lines[..at].to_vec(),
            };
            drop(accepted(format, &damaged.join("\n"), "damaged"));
        }
    }
}

/// Templates that call each other many times do not make millions of steps.
#[test]
fn a_workflow_that_grows_without_end_is_refused() {
    let tasks = |template: &str| {
        (0..100).map(|number| format!("{{name: t{number}, template: {template}}}, ")).collect::<String>()
    };
    let template = |name: &str, called: &str| format!("  - {{name: {name}, dag: {{tasks: [{}]}}}}\n", tasks(called));
    let leaf = "  - {name: d, container: {command: ['true']}}\n";
    let all = template("a", "b") + &template("b", "c") + &template("c", "d") + leaf;
    let error = convert(Format::Argo, &format!("kind: Workflow\nspec:\n  entrypoint: a\n  templates:\n{all}"), "x")
        .unwrap_err();
    assert!(error.to_string().contains("more than 10000 steps"), "{error}");
}

#[test]
fn what_is_no_workflow_has_no_format() {
    for text in ["", "key: value", "{\"id\": \"plan\", \"steps\": []}", "apiVersion: v1\nkind: Pod"] {
        assert_eq!(Format::of(text), None, "{text}");
    }
}
