//! The rates as functions of the working set: a chart for each capacity and each way to draw.

use std::path::Path;

use anyhow::Context as _;
use sluice_api::results::median;
use sluice_chart::{Key, Line, Lines, Marker, Point};

use super::{Drawn, RATES, Seen};

/// Colours of the rates on light ground and on dark.
const COLOURS: [(&str, &str); RATES.len()] = [
    ("#c44e52", "#e57f83"),
    ("#4c72b0", "#86a8e0"),
    ("#55a868", "#7fd196"),
    ("#8172b3", "#b3a5e3"),
];

/// Writes `target/bench/churn-FLOWS-DRAWN.svg` for each.
pub(super) fn write(all: &[Seen], rate: u32) -> anyhow::Result<()> {
    std::fs::create_dir_all("target/bench").context("cannot make target/bench")?;
    let mut capacities: Vec<u32> = all.iter().map(|seen| seen.place.flows).collect();
    capacities.dedup();
    for flows in capacities {
        for drawn in Drawn::ALL {
            let path = Path::new("target/bench").join(format!("churn-{flows}-{drawn}.svg"));
            std::fs::write(&path, draw(all, flows, drawn, rate))
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("drawn in {}", path.display());
        }
    }
    Ok(())
}

/// Draws the medians. What is zero has no place on a logarithmic axis, and no mark.
fn draw(all: &[Seen], flows: u32, drawn: Drawn, rate: u32) -> String {
    let of = |seen: &&Seen| seen.place.flows == flows && seen.place.drawn == drawn;
    let lines = RATES.into_iter().enumerate().map(|(at, name)| {
        let point = |seen: &Seen| {
            let y = median(&seen.rates[at]);
            let x = f64::from(seen.place.working_set) / f64::from(flows);
            let title = format!("{name}, {x} of the places: {y:.0}/s");
            (y > 0.0).then_some(Point { x, y, interval: None, title })
        };
        let points = all.iter().filter(of).filter_map(point).collect();
        Line { class: name.to_owned(), dashed: false, marker: Marker::Disc, points }
    });
    let keys = RATES.into_iter().zip(COLOURS);
    let keys = keys.map(|(name, (light, dark))| Key { class: name, name, light, dark });
    let chart = Lines {
        x_label: "working set, of the chip's places for flows".to_owned(),
        y_label: "a second".to_owned(),
        lines: lines.collect(),
        levels: Vec::new(),
    };
    let title = format!("{flows} places for flows, {rate} frames/s, {drawn}");
    chart.file(&title, &keys.collect::<Vec<_>>())
}
