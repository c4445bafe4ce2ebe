use super::*;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/zovn-fig12")
}

/// Returns the names of the sweeps of Figure 12, or of the kept results.
fn names(extension: &str) -> std::collections::BTreeSet<String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|path| path.extension().is_some_and(|own| own == extension));
    let names = of_kind.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    names.filter(|name| !matches!(name.as_str(), "base" | "params")).collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

const AGAIN: &str = "run experiments/zovn-fig12/run.sh keep, then correct the page";

#[test]
fn page_and_drawings_show_kept_cells() {
    let page = read("README.md");
    for name in names("jsonl") {
        let kept = Kept::parse(&read(&format!("{name}.jsonl"))).unwrap();
        assert!(kept.svg(&name) == read(&format!("{name}.svg")), "{name}.svg: {AGAIN}");
        let table = kept.table();
        assert!(page.contains(&table), "{name}: {AGAIN}\n{table}");
    }
}

#[test]
fn kept_cells_are_those_of_their_sweeps() {
    assert_eq!(names("jsonl"), names("toml"), "each sweep's results are kept: {AGAIN}");
    for name in names("toml") {
        let grid = super::super::grid::Grid::load(&folder().join(format!("{name}.toml"))).unwrap();
        let digests: Vec<String> =
            grid.cells().unwrap().into_iter().map(|cell| cell.digest).collect();
        let lines = read(&format!("{name}.jsonl"));
        let kept = lines.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().digest);
        assert!(kept.eq(digests), "{name}: the cells of another sweep: {AGAIN}");
    }
}

#[test]
fn torn_or_foreign_file_is_refused() {
    for text in ["", "{}", "cell"] {
        assert!(Kept::parse(text).is_err(), "{text}");
    }
}
