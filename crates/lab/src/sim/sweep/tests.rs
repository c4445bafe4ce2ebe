use std::path::PathBuf;

use super::*;

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-sweep-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = r#"
base = "incast"
[grid]
"sim.policies" = [["LL", "ZZ"]]
"sim.seed" = [1, 2]
"switch.buffer_kb" = [50, 150]
"workload.queries" = [3]
"workload.sizes" = [[16]]
"#;

fn swept(folder: &Folder, out: &str, threads: usize) -> (Swept, String) {
    let file = folder.file(SMALL);
    let swept = sweep(&file, &folder.0.join(out), threads, true).unwrap();
    let text = std::fs::read_to_string(&swept.path).unwrap();
    (swept, text)
}

#[test]
fn sweep_file_identical_with_one_or_two_threads() {
    let folder = Folder::new("threads");
    let (one, text) = swept(&folder, "one", 1);
    assert_eq!((one.run, one.broken.len(), text.lines().count()), (4, 0, 4));
    assert!(one.table.contains("switch.buffer_kb"));
    assert_eq!(swept(&folder, "two", 2).1, text);
}

#[test]
fn a_sweep_gives_the_rows_of_a_run() {
    let folder = Folder::new("run");
    let (_, text) = swept(&folder, "out", 2);
    let line: Line = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line.parameters["switch.buffer_kb"], 150);
    let options = crate::sim::Options {
        quiet: true,
        overrides: Overrides {
            queries: Some(3),
            sizes: Some(vec![16]),
            policies: Some(vec![sluice_api::config::Policy::LL, sluice_api::config::Policy::ZZ]),
            ..Overrides::default()
        },
        ..crate::sim::Options::default()
    };
    let outcome = crate::sim::run("incast", &options).unwrap();
    assert_eq!(line.rows, outcome.results.rows);
}

#[test]
fn sweep_gains_equal_with_policies_split_or_joined() {
    let folder = Folder::new("policies");
    let gains = |out: &str, policies: &str| {
        let text = SMALL.replace("[[\"LL\", \"ZZ\"]]", policies);
        let swept = sweep(&folder.file(&text), &folder.0.join(out), 2, true).unwrap();
        let lines = swept.table.lines().filter(|line| line.contains(" to ")).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[words.iter().position(|word| *word == "to").unwrap() - 2..].join(" ")
        });
        let mut gains: Vec<String> = lines.collect();
        gains.sort();
        gains
    };
    let (together, apart) =
        (gains("one", "[[\"LL\", \"ZZ\"]]"), gains("two", "[[\"LL\"], [\"ZZ\"]]"));
    assert_eq!(together.len(), 4, "a gain for each combination");
    assert_eq!(together, apart);
}

#[test]
fn sweep_page_common_values_once_policies_grouped() {
    let folder = Folder::new("page");
    let pages = ["[[\"LL\", \"ZZ\"]]", "[[\"LL\"], [\"ZZ\"]]"].map(|policies| {
        let text = SMALL.replace("[[\"LL\", \"ZZ\"]]", policies);
        let swept = sweep(&folder.file(&text), &folder.0.join("out"), 2, true).unwrap();
        assert!(!swept.table.contains("workload.queries"), "{}", swept.table);
        assert!(swept.table.contains("switch.buffer_kb"), "{}", swept.table);
        std::fs::read_to_string(&swept.page).unwrap()
    });
    for (page, common) in pages.iter().zip(["LL ZZ, 3, 16", "3, 16"]) {
        assert!(page.contains(&format!(">All cells: {common}<")), "{common}");
        for group in ["1, 50", "1, 150", "2, 50", "2, 150"] {
            assert_eq!(
                page.matches(&format!(">{group}<")).count(),
                2,
                "{group}: once in each chart"
            );
        }
    }
}

#[test]
fn tables_differ_by_key_that_differs_in_them() {
    let folder = Folder::new("tables");
    let text = SMALL
        .replace("\"sim.seed\" = [1, 2]", "classes = [{}, { workload = 3 }, { workload = 4 }]")
        .replace("[50, 150]", "[150]");
    let swept = sweep(&folder.file(&text), &folder.0.join("out"), 2, true).unwrap();
    assert!(swept.table.contains("classes.workload"), "{}", swept.table);
    let page = std::fs::read_to_string(&swept.page).unwrap();
    for group in ["", "3", "4"] {
        assert!(page.contains(&format!(">{group}<")), "{group}");
    }
}

#[test]
fn drawing_of_kept_sweep_shows_each_cell() {
    let folder = Folder::new("drawn");
    let (swept, _) = swept(&folder, "out", 2);
    let table = draw(&swept.path, Some(&folder.0)).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2 + 4, "a head, and a line for each cell: {table}");
    assert!(lines[0].starts_with("| # | `sim.seed` | `switch.buffer_kb` | `LL` | `ZZ` | gain"));
    assert!(lines[2].starts_with("| 1 | 1 | 50 | "), "{table}");
    let svg = std::fs::read_to_string(folder.0.join("sweep.svg")).unwrap();
    assert_eq!(svg.matches("class=\"bar ZZ\"").count(), 4 + 1, "the cells, and the key");
}

#[test]
fn a_killed_sweep_goes_on_where_it_stopped() {
    let folder = Folder::new("killed");
    let (swept_first, whole) = swept(&folder, "out", 1);
    // Two cells were done, and a part of the third one's line was written.
    let mut lines = whole.split_inclusive('\n');
    let (first, second, third) =
        (lines.next().unwrap(), lines.next().unwrap(), lines.next().unwrap());
    let torn = format!("{second}{first}{}", &third[..third.len() / 2]);
    std::fs::write(&swept_first.path, torn).unwrap();
    let (again, text) = swept(&folder, "out", 2);
    assert_eq!(again.run, 2, "the torn one and the missing one");
    assert_eq!(text, whole);
    assert_eq!(swept(&folder, "out", 1).0.run, 0);
}

#[test]
fn another_value_is_another_cell() {
    let folder = Folder::new("other");
    let (first, _) = swept(&folder, "out", 2);
    let grown = SMALL.replace("[50, 150]", "[50, 100, 150]");
    let file = folder.file(&grown);
    let again = sweep(&file, first.path.parent().unwrap(), 2, true).unwrap();
    assert_eq!(again.run, 2, "only the new value, once for each seed");
    let text = std::fs::read_to_string(&again.path).unwrap();
    let cells: Vec<usize> =
        text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().cell).collect();
    assert_eq!(cells, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_wrong_sweep_is_said_before_anything_runs() {
    let folder = Folder::new("wrong");
    for (text, expected) in [
        ("base = \"nothing\"\n[grid]", "no scenario and no file is named nothing"),
        ("base = \"incast\"\n[grid]\nseed = [1]", "has the form \"table.key\""),
        ("base = \"incast\"\n[grid]\n\"sim.seed\" = []", "one value at least"),
        ("base = \"incast\"\n[grid]\n\"sim.sed\" = [1]", "sed"),
        ("base = \"incast\"\n[grid]\n\"switch.buffer_kb\" = [150, 1]", "cell 1"),
        ("base = \"incast\"\ngrit = 1\n[grid]", "grit"),
    ] {
        let out = folder.0.join("out");
        let error = sweep(&folder.file(text), &out, 1, true).unwrap_err();
        let words = format!("{error:#}");
        assert!(words.contains(expected), "{text}: {words}");
        assert!(!out.exists(), "{text}");
    }
}
