//! What was measured.

use std::{fmt::Write, fs, path::Path};

use crate::{peer::Kind, sides::Outcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    Tmpfs,
    /// On disk, with forced sync.
    Disk,
}

impl Storage {
    pub fn name(self) -> &'static str {
        match self {
            Storage::Tmpfs => "tmpfs",
            Storage::Disk => "disk",
        }
    }
}

/// One figure: microseconds per cycle, try or hand-over.
#[derive(Debug, Clone)]
pub struct Row {
    pub workload: String,
    pub side: Kind,
    /// How many wait, or contend.
    pub n: usize,
    pub storage: Storage,
    pub median_us: f64,
    pub p99_us: f64,
}

#[derive(Debug, Default)]
pub struct Results {
    pub rows: Vec<Row>,
    /// What else there is to say about the workloads.
    pub facts: Vec<Fact>,
    pub report: String,
}

/// A figure that is no time.
#[derive(Debug, Clone)]
pub struct Fact {
    pub name: String,
    pub side: Kind,
    pub n: usize,
    pub value: f64,
}

impl Results {
    pub fn median(&self, workload: &str, side: Kind, n: usize) -> Option<f64> {
        let found =
            |row: &&Row| row.workload == workload && row.side == side && row.n == n && row.storage == Storage::Tmpfs;
        self.rows.iter().find(found).map(|row| row.median_us)
    }

    pub fn fact(&self, name: &str, side: Kind, n: usize) -> Option<f64> {
        self.facts.iter().find(|fact| fact.name == name && fact.side == side && fact.n == n).map(|fact| fact.value)
    }

    pub fn save(&self, directory: &Path) -> Outcome<()> {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("results.json"), self.json())?;
        Ok(fs::write(directory.join("report.md"), &self.report)?)
    }

    /// The figures that [`save`](Results::save) has written.
    pub fn read(directory: &Path) -> Outcome<Results> {
        let rows: Vec<serde_json::Value> = serde_json::from_str(&fs::read_to_string(directory.join("results.json"))?)?;
        let row = |row: &serde_json::Value| {
            let (name, storage) = (row["side"].as_str()?, row["storage"].as_str()?);
            Some(Row {
                workload: row["workload"].as_str()?.to_owned(),
                side: Kind::EVERY.into_iter().find(|side| side.name() == name)?,
                n: usize::try_from(row["n"].as_u64()?).ok()?,
                storage: [Storage::Tmpfs, Storage::Disk].into_iter().find(|known| known.name() == storage)?,
                median_us: row["median_us"].as_f64()?,
                p99_us: row["p99_us"].as_f64()?,
            })
        };
        Ok(Results { rows: rows.iter().filter_map(row).collect(), ..Results::default() })
    }

    fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            format!(
                r#"  {{"workload": "{}", "side": "{}", "n": {}, "storage": "{}", "median_us": {:.4}, "p99_us": {:.4}}}"#,
                row.workload,
                row.side.name(),
                row.n,
                row.storage.name(),
                row.median_us,
                row.p99_us
            )
        });
        format!("[\n{}\n]\n", rows.collect::<Vec<_>>().join(",\n"))
    }
}

/// The value below which this share of the values lies.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

/// A table in Markdown.
pub fn table(header: &[String], lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut put = |cells: &[String]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    put(header);
    let rule: Vec<String> = (0..header.len()).map(|column| if column == 0 { "---" } else { "---:" }.into()).collect();
    put(&rule);
    for line in lines {
        put(line);
    }
    text
}

/// Three digits say enough.
pub fn short(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".into(),
        small if small < 10.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
