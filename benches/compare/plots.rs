//! The figures as pictures.

use std::path::Path;

use plotters::prelude::*;

use crate::{
    peer::Kind,
    results::{Results, Row, Storage},
    sides::Outcome,
};

const SIZE: (u32, u32) = (760, 460);

pub fn draw(results: &Results, directory: &Path) -> Outcome<()> {
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.storage == Storage::Tmpfs).collect();
    let of = |workload: &str| -> Vec<&Row> { rows.iter().copied().filter(|row| row.workload == workload).collect() };
    let queues = [
        ("drain_shared_session", "Hand-over between threads of one client"),
        ("drain_own_session", "Hand-over between sessions"),
    ];
    for (workload, title) in queues {
        let rows = of(workload);
        if !rows.is_empty() {
            lines(title, &rows, &directory.join(format!("{workload}.svg")))?;
        }
    }
    let bars_of = [
        ("uncontended_mutex", "Uncontended mutex: acquire and release"),
        ("many_paths", "1,000 paths, 32 threads: time per cycle"),
    ];
    for (workload, title) in bars_of {
        let rows = of(workload);
        if !rows.is_empty() {
            bars(title, &rows, &directory.join(format!("{workload}.svg")))?;
        }
    }
    Ok(())
}

fn color(side: Kind) -> RGBColor {
    match side {
        Kind::CuratorLocks => RGBColor(0xd0, 0x3a, 0x2b),
        Kind::Curator => RGBColor(0x2a, 0x6f, 0xbb),
        Kind::Kazoo => RGBColor(0x3c, 0x9a, 0x5f),
        Kind::ZooKeeperCrate => RGBColor(0x8a, 0x5f, 0xbf),
        _ => RGBColor(0x55, 0x55, 0x55),
    }
}

/// Both axes are logarithmic.
fn lines(title: &str, rows: &[&Row], file: &Path) -> Outcome<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = rows.iter().map(|row| row.n).max().unwrap_or(1) as f64;
    let (low, high) = range(rows);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..most * 1.2).log_scale(), (low / 1.5..high * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("waiters")
        .y_desc("microseconds per hand-over, median")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for side in Kind::ALL {
        let points: Vec<(f64, f64)> =
            rows.iter().filter(|row| row.side == side).map(|row| (row.n as f64, row.median_us)).collect();
        if points.is_empty() {
            continue;
        }
        let style = color(side).stroke_width(2);
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color(side).filled())))?;
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(side.name())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(RGBColor(0xcc, 0xcc, 0xcc))
        .draw()?;
    Ok(root.present()?)
}

/// The median as a bar, the 99th percentile as a mark.
fn bars(title: &str, rows: &[&Row], file: &Path) -> Outcome<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (_, high) = range(rows);
    let count = rows.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..count, 0.0..high * 1.15)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc("microseconds, median; the line is the 99th percentile")
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (index, row) in rows.iter().enumerate() {
        let (left, right) = (index as f64 + 0.2, index as f64 + 0.8);
        let bar = Rectangle::new([(left, 0.0), (right, row.median_us)], color(row.side).filled());
        chart.draw_series([bar])?;
        let mark = [(left, row.p99_us), (right, row.p99_us)];
        chart.draw_series(LineSeries::new(mark, color(row.side).stroke_width(2)))?;
        let label = format!("{}: {:.0}", row.side.name(), row.median_us);
        let above = row.median_us.max(row.p99_us) + high * 0.04;
        chart.draw_series([Text::new(label, (left, above), ("sans-serif", 13))])?;
    }
    Ok(root.present()?)
}

fn range(rows: &[&Row]) -> (f64, f64) {
    let low = rows.iter().map(|row| row.median_us).fold(f64::INFINITY, f64::min);
    let high = rows.iter().map(|row| row.median_us.max(row.p99_us)).fold(1.0, f64::max);
    (low, high)
}
