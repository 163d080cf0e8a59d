//! The figures as pictures.

use std::{fs, path::Path};

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

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

/// Waiters and microseconds go by their logarithms.
fn lines(title: &str, rows: &[&Row], file: &Path) -> Outcome<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut numbers: Vec<usize> = rows.iter().map(|row| row.n).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let [first, .., last] = numbers.iter().map(|n| *n as f64).collect::<Vec<_>>()[..] else { return Ok(()) };
    let medians = || rows.iter().map(|row| row.median_us);
    let (low, high) = (medians().fold(f64::INFINITY, f64::min), medians().fold(1.0, f64::max));
    let base = if high / low < 20.0 { 2.0 } else { 10.0 };
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        // The names of the sides stand in the room above.
        .build_cartesian_2d(
            (first..last).log_scale().with_key_points(numbers.iter().map(|n| *n as f64).collect()),
            (low / 1.3..high * 2.2).log_scale().base(base),
        )?;
    chart
        .configure_mesh()
        .x_desc("waiters")
        .y_desc("microseconds per hand-over, median (logarithmic)")
        .x_labels(numbers.len())
        .x_label_formatter(&|n| format!("{n:.0}"))
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
        // A side is known by its mark as well as by its colour, in the picture and in the list of names.
        let (filled, hollow) = (color(side).filled(), color(side).stroke_width(2));
        macro_rules! marked {
            ($mark:expr) => {{
                let mark = $mark;
                chart.draw_series(points.iter().map(|at| EmptyElement::at(*at) + mark((0, 0))))?;
                chart.draw_series(LineSeries::new(points.iter().copied(), style))?.label(side.name()).legend(
                    move |at| EmptyElement::at(at) + PathElement::new(vec![(0, 0), (18, 0)], style) + mark((9, 0)),
                );
            }};
        }
        match side {
            Kind::CuratorLocks => marked!(move |at| Circle::new(at, 5, filled)),
            Kind::Curator => marked!(move |at| TriangleMarker::new(at, 7, filled)),
            Kind::Kazoo => marked!(move |at| Cross::new(at, 5, hollow)),
            Kind::ZooKeeperCrate => marked!(move |at| Circle::new(at, 5, hollow)),
            _ => marked!(move |at| Circle::new(at, 2, filled)),
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(RGBColor(0xcc, 0xcc, 0xcc))
        .draw()?;
    root.present()?;
    drop(chart);
    drop(root);
    for_dark_pages(file)
}

/// The medians set the scale. The 99th percentile is a line above the bar, which may end beyond the picture, and a number below.
fn bars(title: &str, rows: &[&Row], file: &Path) -> Outcome<()> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let high = rows.iter().map(|row| row.median_us).fold(1.0, f64::max);
    let (top, count) = (high * 1.4, rows.len() as f64);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..count, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc("microseconds, median; the line goes to the 99th percentile")
        .y_label_formatter(&|y| format!("{y:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for (index, row) in rows.iter().enumerate() {
        let (left, middle, aside, right) =
            (index as f64 + 0.2, index as f64 + 0.5, index as f64 + 0.77, index as f64 + 0.8);
        let bar = Rectangle::new([(left, 0.0), (right, row.median_us)], color(row.side).filled());
        chart.draw_series([bar])?;
        let whisker = [(aside, row.median_us), (aside, row.p99_us.min(top))];
        chart.draw_series(LineSeries::new(whisker, color(row.side).stroke_width(2)))?;
        // Below the scale are only pixels: the mesh ends there.
        let text = |text: String, value: f64, pixels: i32| {
            let style = TextStyle::from(("sans-serif", 14).into_font()).pos(Pos::new(HPos::Center, VPos::Center));
            EmptyElement::at((middle, value)) + Text::new(text, (0, pixels), style)
        };
        chart.draw_series([
            text(format!("{:.0}", row.median_us), row.median_us, -10),
            text(row.side.name().to_owned(), 0.0, 14),
            text(format!("99 %: {:.0}", row.p99_us), 0.0, 32),
        ])?;
    }
    root.present()?;
    drop(chart);
    drop(root);
    for_dark_pages(file)
}

/// Black and white change places on a dark page.
fn for_dark_pages(file: &Path) -> Outcome<()> {
    let style = "<style>@media (prefers-color-scheme: dark) { [fill='#FFFFFF'] { fill: #0d1117; } [stroke='#FFFFFF'] { stroke: \
                 #0d1117; } [fill='#000000'] { fill: #e6edf3; } [stroke='#000000'] { stroke: #e6edf3; } [fill='#555555'] { fill: \
                 #9ea7b3; } [stroke='#555555'] { stroke: #9ea7b3; } }</style>";
    let picture = fs::read_to_string(file)?;
    let (head, rest) = picture.split_once('>').ok_or("no picture")?;
    Ok(fs::write(file, format!("{head}>\n{style}{rest}"))?)
}
