use super::{super::PlanFile, *};

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with these files.
    fn with(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = folder.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> PlanFile {
        PlanFile::read_now(&self.path(name)).unwrap()
    }

    /// The problem as the screen shows it, without the folder's own name.
    fn refusal(&self, name: &str) -> String {
        let report = PlanFile::read_now(&self.path(name)).unwrap_err().report();
        assert_eq!(report.code, "PLAN_REFUSED");
        let lines: Vec<String> =
            report.violations.iter().map(|found| found.lines(report.source.as_ref())[0].render(false)).collect();
        lines.join("\n").replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn names(part: &str) -> String {
    format!("id: outer\nsteps:\n  - {{id: a, tool: noop}}\n  - {{id: b, plan: {part}}}\n")
}

const INNER: &str = "id: inner\nsteps: [{id: c, tool: noop}]\n";

#[test]
fn files_are_put_in_place_relative_to_the_file_that_names_them() {
    let middle = "id: middle\nsteps: [{id: m, plan: ../inner.yaml}, {id: n, plan: more/deep.json}]\n";
    let deep = r#"{"id": "deep", "steps": [{"id": "d", "tool": "noop"}]}"#;
    let folder = Folder::with(&[
        ("plan.yaml", &names("./parts/middle.yaml")),
        ("parts/middle.yaml", middle),
        ("inner.yaml", INNER),
        ("parts/more/deep.json", deep),
    ]);
    let document = folder.read("plan.yaml").document();
    let whole: serde_json::Value = serde_json::from_str(&document.text).unwrap();
    let id = |place: &str| whole.pointer(place).and_then(|id| id.as_str());
    assert_eq!(id("/steps/1/plan/steps/0/plan/id"), Some("inner"));
    assert_eq!(id("/steps/1/plan/steps/1/plan/id"), Some("deep"));
}

#[test]
fn a_plan_that_names_no_files_is_sent_as_it_was_written() {
    for text in ["id: p\nsteps: [{id: plan, tool: noop}]\n", "plan: [\n"] {
        let folder = Folder::with(&[("plan.yaml", text)]);
        assert_eq!(folder.read("plan.yaml").document().text, text);
    }
}

#[test]
fn a_file_that_several_steps_name_is_read_once() {
    let plan = "id: p\nsteps: [{id: a, plan: i.yaml}, {id: b, plan: ./i.yaml}, {id: c, plan: x/../i.yaml}]\n";
    let folder = Folder::with(&[("plan.yaml", plan), ("i.yaml", INNER)]);
    assert_eq!(folder.read("plan.yaml").whole.unwrap().sources.len(), 2);
}

#[test]
fn each_wrong_name_says_where_it_stands_and_what_to_do() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("o.yaml"), INNER).unwrap();
    let folder = Folder::with(&[("parts/build.yaml", INNER), ("parts/binary", ""), ("parts/long.yaml", "")]);
    fs::write(folder.path("parts/binary"), b"a\n\xff").unwrap();
    File::options()
        .write(true)
        .open(folder.path("parts/long.yaml"))
        .unwrap()
        .set_len(super::super::text::MAX_BYTES + 1)
        .unwrap();
    std::os::unix::fs::symlink(outside.path().join("o.yaml"), folder.path("parts/link.yaml")).unwrap();
    for (name, expected) in [
        (
            "parts/biuld.yaml",
            "names `parts/biuld.yaml`, and there is no file parts/biuld.yaml; did you mean `parts/build.yaml`?",
        ),
        (
            "elsewhere.yaml",
            "names `elsewhere.yaml`, and there is no file elsewhere.yaml: create it, or correct the name",
        ),
        // Not the plan itself, which is similar.
        ("plans.yaml", "names `plans.yaml`, and there is no file plans.yaml: create it"),
        ("parts", "names `parts`, which is a folder: name a YAML or JSON file in it"),
        ("parts/build.yaml/x", "names `parts/build.yaml/x`, and parts/build.yaml/x cannot be read: Not a directory"),
        ("/etc/plan.yaml", "names `/etc/plan.yaml`, an absolute path: name the file relative to"),
        ("../plan.yaml", "names `../plan.yaml`, which is outside of "),
        ("parts/../../plan.yaml", "names `parts/../../plan.yaml`, which is outside of "),
        ("parts/link.yaml", "names `parts/link.yaml`, which leads through a symbolic link outside of "),
        ("parts/long.yaml", "names `parts/long.yaml`, which is longer than 4 MiB"),
        ("parts/binary", "names `parts/binary`, which is not text: its line 2 is not UTF-8"),
        ("\"\"", "must be a plan or the name of a file: it is empty"),
        ("\"${inputs.part}\"", "names the file `${inputs.part}`, and templates are not filled in there"),
    ] {
        fs::write(folder.path("plan.yaml"), names(name)).unwrap();
        let refusal = folder.refusal("plan.yaml");
        assert!(refusal.starts_with(&format!("plan.yaml:4:19: steps[1].plan: {expected}")), "{name}: {refusal}");
    }
}

#[test]
fn a_task_stands_in_a_file_beside_the_plan() {
    let plan = |name: &str| format!("id: p\nsteps:\n  - {{id: a, agent: {{model: m, task: {{file: {name}}}}}}}\n");
    let folder =
        Folder::with(&[("plan.yaml", &plan("prompts/task.md")), ("prompts/task.md", "# Do it\n\nid: ${inputs.x}\n")]);
    let whole: serde_json::Value = serde_json::from_str(&folder.read("plan.yaml").document().text).unwrap();
    assert_eq!(whole["steps"][0]["agent"]["task"], "# Do it\n\nid: ${inputs.x}\n");
    // The same file may be read as both.
    let both = format!("{}  - {{id: b, plan: inner.yaml}}\n", plan("inner.yaml"));
    let folder_of_both = Folder::with(&[("plan.yaml", &both), ("inner.yaml", INNER)]);
    let whole: serde_json::Value = serde_json::from_str(&folder_of_both.read("plan.yaml").document().text).unwrap();
    assert_eq!(
        (&whole["steps"][0]["agent"]["task"], &whole["steps"][1]["plan"]["id"]),
        (&INNER.into(), &"inner".into())
    );
    for (name, expected) in [
        (
            "prompts/taks.md",
            "names `prompts/taks.md`, and there is no file prompts/taks.md; did you mean `prompts/task.md`?",
        ),
        ("prompts", "names `prompts`, which is a folder: name a text file in it"),
        ("../a.md", "names `../a.md`, which is outside of "),
        ("\"\"", "must be the name of a file: it is empty"),
    ] {
        fs::write(folder.path("plan.yaml"), plan(name)).unwrap();
        let refusal = folder.refusal("plan.yaml");
        assert!(refusal.starts_with(&format!("plan.yaml:3:37: steps[0].agent.task: {expected}")), "{name}: {refusal}");
    }
}

#[test]
fn what_cannot_be_a_plan_is_reported_in_its_own_file() {
    for (text, expected) in [
        ("id: inner\nsteps: [}\n", "parts/i.yaml:2:8: invalid YAML: "),
        ("", "parts/i.yaml:1:1: the file is empty: it must have a plan"),
        ("- {id: a, tool: noop}\n", "parts/i.yaml:1:1: the file must have a plan"),
        ("plan: {id: p, steps: []}\n", "parts/i.yaml:1:1: has settings around its plan"),
    ] {
        let folder = Folder::with(&[("plan.yaml", &names("parts/i.yaml")), ("parts/i.yaml", text)]);
        let refusal = folder.refusal("plan.yaml");
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}

#[test]
fn a_plan_within_itself_is_refused_with_its_chain() {
    let folder = Folder::with(&[
        ("plan.yaml", &names("parts/b.yaml")),
        ("parts/b.yaml", &names("c.yaml")),
        ("parts/c.yaml", &names("../plan.yaml")),
    ]);
    assert_eq!(
        folder.refusal("plan.yaml"),
        "parts/c.yaml:4:19: steps[1].plan: names `../plan.yaml`, which would be a plan within itself: plan.yaml → parts/b.yaml → \
         parts/c.yaml → plan.yaml (each names the next): let one of them name another file"
    );
    fs::write(folder.path("own.yaml"), names("own.yaml")).unwrap();
    assert!(folder.refusal("own.yaml").contains("within itself: own.yaml → own.yaml (each"));
}

#[test]
fn files_are_nested_as_deep_as_plans_are() {
    let files: Vec<(String, String)> =
        (0..7).map(|n| (format!("p{n}.yaml"), names(&format!("p{}.yaml", n + 1)))).collect();
    let mut files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("p7.yaml", INNER));
    let folder = Folder::with(&files);
    folder.read("p2.yaml");
    let refusal = folder.refusal("p1.yaml");
    assert!(refusal.starts_with("p6.yaml:4:19: steps[1].plan: names a file, and stands in 5 other plans"), "{refusal}");
}

#[test]
fn files_that_would_be_too_long_together_are_refused() {
    let long = format!("id: i\nsteps: [{{id: c, tool: noop, title: {}}}]\n", "x".repeat(1 << 20));
    let steps: String = (0..5).map(|n| format!("  - {{id: s{n}, plan: i.yaml}}\n")).collect();
    let folder = Folder::with(&[("plan.yaml", &format!("id: p\nsteps:\n{steps}")), ("i.yaml", &long)]);
    let refusal = folder.refusal("plan.yaml");
    assert!(refusal.starts_with("plan.yaml:6:20: steps[3].plan: with the files of its steps in place"), "{refusal}");
}

#[test]
fn all_wrong_names_are_reported_at_once() {
    let plan =
        "id: p\nsteps: [{id: a, plan: x.yaml}, {id: b, plan: y.yaml}, {id: c, plan: i.yaml}, {id: d, plan: i.yaml}]\n";
    let folder = Folder::with(&[("plan.yaml", plan), ("i.yaml", "id: [\n")]);
    assert_eq!(folder.refusal("plan.yaml").lines().count(), 3);
}
