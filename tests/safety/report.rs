//! The report: a table in Markdown, a page with pictures, and the history for checkers of others, in `target/safety`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    Count, GROUPS, Group, Left, RESUMED, Resumed, Rule, SESSION,
    comparer::Stale,
    faults::Done,
    growth::Growth,
    history::{Claim, Violation},
    party::Party,
    schedule::{FaultKind, Target},
};

pub struct Findings {
    pub seed: u64,
    pub servers: usize,
    pub took: Duration,
    pub begin: u64,
    pub parties: Vec<Arc<Party>>,
    pub done: Vec<Done>,
    /// The violations of each group.
    pub violations: Vec<Vec<Violation>>,
    /// The violations of each group by those who believe until they release.
    pub careless: Vec<usize>,
    /// And by those who believe a quarter of the session timeout too long.
    pub late: Vec<usize>,
    /// With a guard, and without.
    pub counts: [Count; 2],
    /// The time from the end of all faults of a lock to its next grant, the shortest first.
    pub resumed: Vec<Resumed>,
    pub stale: Vec<Stale>,
    /// The growth of each thing in use, the largest first.
    pub growths: Vec<Growth>,
    pub left: Vec<Left>,
}

impl Findings {
    fn parties_of(&self, group: &str) -> impl Iterator<Item = &Arc<Party>> {
        self.parties.iter().filter(move |party| party.group.name == group)
    }

    fn faults(&self) -> BTreeMap<FaultKind, usize> {
        let mut faults = BTreeMap::new();
        self.done.iter().for_each(|done| *faults.entry(done.planned.kind).or_default() += 1);
        faults
    }

    /// The rest of the certain time at each release, as hundredths of the session timeout, the least first.
    fn margins(&self) -> Vec<(i64, &'static str)> {
        let mut margins = Vec::new();
        for party in &self.parties {
            let history = party.history.lock().unwrap();
            let of_party = history.attempts.iter().filter_map(|attempt| attempt.margin);
            margins.extend(of_party.map(|margin| (margin * 100 / SESSION.as_micros() as i64, party.group.name)));
        }
        margins.sort_unstable();
        margins
    }

    /// For how long those believed whose session was ended from outside.
    fn believed(&self) -> Vec<Duration> {
        let of_party = |party: &Arc<Party>| party.history.lock().unwrap().promised().1;
        let is_promised = |party: &&Arc<Party>| party.group.rule.is_promised();
        self.parties.iter().filter(is_promised).flat_map(of_party).collect()
    }

    pub fn resumed_at(&self, share: f64) -> Duration {
        let index = ((self.resumed.len() as f64 * share) as usize).min(self.resumed.len().saturating_sub(1));
        self.resumed.get(index).map_or(Duration::ZERO, |resumed| resumed.time)
    }
}

/// A grant is an acquire that has returned.
fn grants(party: &Party) -> usize {
    let history = party.history.lock().unwrap();
    history.attempts.iter().filter(|attempt| attempt.held.is_some()).count()
}

pub fn table(findings: &Findings) -> String {
    let mut text = String::new();
    let all: usize = findings.parties.iter().map(|party| grants(party)).sum();
    let kinds = findings.faults();
    let locks = || GROUPS.iter().zip(&findings.violations).filter(|(group, _)| group.rule.is_promised());
    let violations: usize = locks().map(|(_, violations)| violations.len()).sum();
    writeln!(
        text,
        "Seed {}: {:.0?}, {} processes, servers: {}, {all} grants, {} faults of {} kinds, **{violations} violations**.\n",
        findings.seed,
        findings.took,
        findings.parties.len(),
        findings.servers,
        findings.done.len(),
        kinds.len()
    )
    .unwrap();
    writeln!(text, "| lock | processes | grants | failed | processes that ended | violations | had they not looked |")
        .unwrap();
    writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: | ---: |").unwrap();
    for ((group, violations), careless) in GROUPS.iter().zip(&findings.violations).zip(&findings.careless) {
        let (mut failed, mut deaths) = (0, 0);
        for party in findings.parties_of(group.name) {
            let history = party.history.lock().unwrap();
            failed += history.attempts.iter().filter(|attempt| !attempt.error.is_empty()).count();
            deaths += history.deaths.len();
        }
        let of_group: usize = findings.parties_of(group.name).map(|party| grants(party)).sum();
        let (name, size) = (group.name, group.parties.len());
        let note = match group.rule {
            Rule::Nothing => " (no lock at all: a control)",
            Rule::Foreign if group.name == "curator-keeper" => " (Curator on what answers as ClickHouse Keeper)",
            Rule::Foreign => " (another client, as it is)",
            Rule::Touched => " (its znodes are deleted by hand: nothing is promised)",
            _ => "",
        };
        let violations = violations.len();
        writeln!(text, "| {name}{note} | {size} | {of_group} | {failed} | {deaths} | {violations} | {careless} |")
            .unwrap();
    }
    let of_locks = |counts: &[usize]| -> usize {
        GROUPS.iter().zip(counts).filter(|(group, _)| group.rule.is_promised()).map(|(_, count)| count).sum()
    };
    let [careless, late] = [&findings.careless, &findings.late].map(|counts| of_locks(counts));
    writeln!(
        text,
        "\nHad they not looked but believed until their release: {careless} violations. Had they believed a quarter of the \
         session timeout ({SESSION:?}) longer: {late}."
    )
    .unwrap();
    let believed = findings.believed();
    writeln!(
        text,
        "\nHolders whose session an administrator ended: {}. They believed for {:.1?} at most after that command had begun.",
        believed.len(),
        believed.iter().max().copied().unwrap_or_default()
    )
    .unwrap();
    for Count { kind, begun, done, lost, value } in &findings.counts {
        writeln!(
            text,
            "\nAdded to a counter under the lock by holders that do not look, {kind}: {done} done of {begun} begun, the \
             counter shows {value}; {lost} lost."
        )
        .unwrap();
    }
    let margins = findings.margins();
    let margin = |share: f64| margins.get((margins.len() as f64 * share) as usize).map_or(0, |(margin, _)| *margin);
    writeln!(
        text,
        "\nLeft of the certain time at a release, in hundredths of the session timeout: {} at least, {} at the first \
         hundredth, {} at the median, of {} holds.",
        margin(0.0),
        margin(0.01),
        margin(0.5),
        margins.len()
    )
    .unwrap();
    writeln!(text, "{}", closest(findings)).unwrap();
    writeln!(
        text,
        "\nFrom the end of a lock's faults to its next grant, {} times: {:.1?} at the median, {:.1?} at the 99th \
         percentile, {:.1?} at most.\n",
        findings.resumed.len(),
        findings.resumed_at(0.5),
        findings.resumed_at(0.99),
        findings.resumed_at(1.0)
    )
    .unwrap();
    for Resumed { lock, at, time } in findings.resumed.iter().rev().take_while(|resumed| resumed.time > RESUMED) {
        writeln!(text, "{lock}: {time:.1?}, from {at:.1?} after the begin on.\n").unwrap();
    }
    let times: BTreeSet<(u64, u64, &str)> =
        findings.stale.iter().map(|stale| (stale.from, stale.to, stale.lock)).collect();
    if !times.is_empty() {
        writeln!(
            text,
            "Servers showed znodes that were deleted, {} times, which counts as a fault of theirs; the longest:\n",
            times.len()
        )
        .unwrap();
        let mut longest: Vec<&Stale> = findings.stale.iter().collect();
        longest.sort_by_key(|stale| Reverse(stale.to - stale.from));
        for Stale { lock, znode, server, from, to } in longest.into_iter().take(5) {
            let [at, time] = [from - findings.begin.min(*from), to - from].map(Duration::from_nanos);
            writeln!(text, "{lock}: {znode} by server {server} for {time:.1?}, from {at:.1?} after the begin on.\n")
                .unwrap();
        }
    }
    let mut named: Vec<&str> = Vec::new();
    for Growth { what, whose, mean, more, samples, grows } in &findings.growths {
        if *grows || !named.contains(what) {
            named.push(what);
            let verdict = if *grows { ": it grows" } else { "" };
            writeln!(
                text,
                "{what}, most of all {whose}: {mean:.0} on the average, {more:+.1} over {samples} s{verdict}.\n"
            )
            .unwrap();
        }
    }
    writeln!(text, "| fault | times |\n| --- | ---: |").unwrap();
    for (kind, times) in kinds {
        writeln!(text, "| {} | {times} |", words(kind)).unwrap();
    }
    for Left { what, is_stale, .. } in &findings.left {
        let why = if *is_stale { "Where a server shows a znode that was deleted: " } else { "" };
        writeln!(text, "\n{why}{what}").unwrap();
    }
    for (group, violations) in locks() {
        for violation in violations.iter().take(3) {
            let at = Duration::from_nanos(violation.at.saturating_sub(findings.begin));
            writeln!(text, "\n{}, {at:.1?} after the begin: {}", group.name, violation.what).unwrap();
        }
    }
    text
}

/// The release with the least certain time left, and what was broken then.
fn closest(findings: &Findings) -> String {
    let mut closest: Option<(i64, &Party, u64)> = None;
    for party in &findings.parties {
        for attempt in &party.history.lock().unwrap().attempts {
            if let (Some(margin), Some((_, _, released))) = (attempt.margin, attempt.held)
                && closest.is_none_or(|(least, ..)| margin < least)
            {
                closest = Some((margin, party, released));
            }
        }
    }
    let Some((margin, party, at)) = closest else { return String::new() };
    let is_then = |done: &&Done| done.from <= at && at <= done.to + SESSION.as_nanos() as u64;
    let concerns = |done: &&Done| done.concerns(party.group, &findings.parties);
    let faults = findings.done.iter().filter(is_then).filter(concerns).map(|done| {
        let whose = match done.planned.target {
            Target::Process(number) => format!(" of process {number}"),
            Target::Servers | Target::Touched => String::new(),
        };
        let [from, to] = [done.from, done.to].map(|at| Duration::from_nanos(at.saturating_sub(findings.begin)));
        format!("{}{whose} from {from:.1?} to {to:.1?}", words(done.planned.kind))
    });
    format!(
        "\nThe closest one: {} of {}, {:.1?} after the begin, with {:?} left. What was wrong at the time or up to {SESSION:?} \
         before: {}.",
        party.name(),
        party.group.name,
        Duration::from_nanos(at.saturating_sub(findings.begin)),
        Duration::from_micros(margin as u64),
        faults.collect::<Vec<String>>().join("; ")
    )
}

/// `KilledLeader` as "killed leader".
fn words(kind: FaultKind) -> String {
    let mut words = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn directory(servers: usize) -> PathBuf {
    let servers = if servers == 1 { "one-server".to_owned() } else { format!("{servers}-servers") };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("safety").join(servers);
    fs::create_dir_all(&directory).unwrap();
    directory
}

pub fn write(findings: &Findings) {
    let directory = directory(findings.servers);
    fs::write(directory.join("report.md"), table(findings)).unwrap();
    fs::write(directory.join("report.html"), page(findings)).unwrap();
    for group in &GROUPS {
        fs::write(directory.join(format!("{}.edn", group.name)), history_of(findings, group.name)).unwrap();
    }
    fs::write(directory.join("faults.edn"), nemesis(findings)).unwrap();
    println!("the report: {}", directory.join("report.html").display());
}

/// The operations of one lock as Knossos reads them: an acquire and a release of each hold. Who may not believe any more gives
/// its lock back, whatever it still says to a server later.
fn history_of(findings: &Findings, group: &str) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for party in findings.parties_of(group) {
        let history = party.history.lock().unwrap();
        let believed = history.promised().0;
        // Jepsen's processes do nothing more after an operation that has no certain end.
        let mut process = party.number;
        let mut add = |process: usize, time: u64, kind: &str, op: &str, token: Option<i64>| {
            let since = time.saturating_sub(findings.begin);
            let value = token.map_or("nil".to_owned(), |token| token.to_string());
            lines.push((time, format!("{{:process {process} :type :{kind} :f :{op} :value {value} :time {since}}}")));
        };
        for attempt in &history.attempts {
            add(process, attempt.invoked, "invoke", "acquire", None);
            match (attempt.held, attempt.done) {
                (Some((token, returned, released)), done) => {
                    let claims = &believed[..believed.partition_point(|claim| claim.from <= released)];
                    let last = claims.last().filter(|claim| claim.from >= returned);
                    let token = Some(token);
                    add(process, returned, "ok", "acquire", token);
                    add(process, last.map_or(returned, |claim| claim.to), "invoke", "release", token);
                    let kind = if attempt.error.is_empty() { "ok" } else { "info" };
                    done.into_iter().for_each(|done| add(process, done, kind, "release", token));
                }
                (None, Some(done)) => add(process, done, "fail", "acquire", None),
                (None, None) => {}
            }
            if attempt.done.is_none() || attempt.held.is_some() && !attempt.error.is_empty() {
                process += 100;
            }
        }
    }
    lines.sort();
    lines.into_iter().fold(String::new(), |text, (_, line)| text + &line + "\n")
}

/// The faults as Jepsen's nemesis tells them. `:at` is the planned moment, the same for the same seed.
fn nemesis(findings: &Findings) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for Done { planned, from, to } in &findings.done {
        let name = words(planned.kind).replace(' ', "-");
        let value = match planned.target {
            Target::Process(number) => number.to_string(),
            Target::Servers => ":servers".to_owned(),
            Target::Touched => ":touched".to_owned(),
        };
        let at = planned.at.as_nanos();
        for (time, kind) in [(*from, "invoke"), (*to, "info")] {
            let since = time.saturating_sub(findings.begin);
            let op = format!("{{:process :nemesis :type :{kind} :f :{name} :value {value} :at {at} :time {since}}}");
            lines.push((time, op));
        }
    }
    lines.sort();
    lines.into_iter().fold(String::new(), |text, (_, line)| text + &line + "\n")
}

/// How many seconds a picture shows.
const SECONDS: u64 = 20;
const WIDTH: f64 = 1000.0;
const LANE: f64 = 14.0;

fn page(findings: &Findings) -> String {
    let mut body = String::new();
    for line in table(findings).lines() {
        if line.starts_with("| ---") {
            continue;
        }
        if let Some(cells) = line.strip_prefix("| ") {
            let cells = cells.trim_end_matches(" |").split(" | ").map(|cell| format!("<td>{cell}</td>"));
            writeln!(body, "<table><tr>{}</tr></table>", cells.collect::<String>()).unwrap();
        } else if !line.is_empty() {
            writeln!(body, "<p>{line}</p>").unwrap();
        }
    }
    // Rows of one table come one after the other.
    let body = body.replace("</table>\n<table>", "\n").replace("**", "");
    let pictures: String = GROUPS.iter().map(|group| timeline(findings, group)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>What the locks survive</title>\n<style>\n\
         body {{ font: 15px/1.5 sans-serif; max-width: 1240px; margin: 2em auto; padding: 0 1em }}\n\
         table {{ border-collapse: collapse; margin: 1em 0 }} td {{ padding: 2px 12px; border-bottom: 1px solid #ddd }}\n\
         td + td {{ text-align: right }} svg text {{ font: 11px sans-serif }}\n</style></head><body>\n\
         <h1>What the locks survive</h1>\n{body}\n{}\n<h2>Who believed that it holds, and what went wrong</h2>\n\
         <p>A lane a process: bars are holds that were believed valid, hatched bands above them the faults of this process, \
         those over all lanes the faults of the servers. The first {SECONDS} seconds with the most faults.</p>\n{pictures}\n\
         </body></html>\n",
        histogram(findings)
    )
}

/// The lanes of one lock where most went wrong.
fn timeline(findings: &Findings, group: &Group) -> String {
    let parties: Vec<&Arc<Party>> = findings.parties_of(group.name).collect();
    let concerns = |done: &&Done| done.concerns(group, &findings.parties);
    let of_group: Vec<&Done> = findings.done.iter().filter(concerns).collect();
    let span = SECONDS * 1_000_000_000;
    let within = |from: u64| of_group.iter().filter(|done| (from..from + span).contains(&done.from)).count();
    let begin = of_group.iter().map(|done| done.from).max_by_key(|from| within(*from)).unwrap_or(findings.begin);
    let x = |at: u64| (at.clamp(begin, begin + span) - begin) as f64 / span as f64 * WIDTH;
    let is_seen = |from: u64, to: u64| to >= begin && from <= begin + span;
    let height = parties.len() as f64 * 2.0 * LANE + LANE;
    let first = (begin - findings.begin.min(begin)) as f64 / 1e9;
    let mut svg = String::new();
    for done in of_group.iter().filter(|done| is_seen(done.from, done.to)) {
        let lane = parties.iter().position(|party| done.planned.target == Target::Process(party.number));
        let (y, tall) = lane.map_or((0.0, height), |lane| (lane as f64 * 2.0 * LANE, LANE * 0.8));
        let (left, wide) = (x(done.from), (x(done.to) - x(done.from)).max(2.0));
        writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"url(#fault)\" \
             stroke=\"#999\" stroke-width=\"0.5\"><title>{}</title></rect>",
            words(done.planned.kind)
        )
        .unwrap();
    }
    for second in (0..=SECONDS).step_by(5) {
        let x = second as f64 / SECONDS as f64 * WIDTH;
        writeln!(
            svg,
            "<path d=\"M{x} {height}v5\" stroke=\"#000\"/><text x=\"{x}\" y=\"{:.1}\">{:.0} s</text>",
            height + LANE + 4.0,
            first + second as f64
        )
        .unwrap();
    }
    for (lane, party) in parties.iter().enumerate() {
        let y = lane as f64 * 2.0 * LANE + LANE * 0.8;
        writeln!(svg, "<text x=\"{:.0}\" y=\"{:.1}\">{}</text>", WIDTH + 8.0, y + LANE * 0.8, party.name()).unwrap();
        for Claim { from, to, token, .. } in &party.history.lock().unwrap().claims {
            if is_seen(*from, *to) {
                let (left, wide) = (x(*from), (x(*to) - x(*from)).max(0.7));
                writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{LANE:.1}\" fill=\"#135\">\
                     <title>token {token}</title></rect>"
                )
                .unwrap();
            }
        }
    }
    let tall = height + 2.0 * LANE;
    format!(
        "<h3>{}</h3>\n<svg width=\"1180\" height=\"{tall:.0}\"><defs><pattern id=\"fault\" width=\"6\" height=\"6\" \
         patternUnits=\"userSpaceOnUse\"><path d=\"M0 6L6 0\" stroke=\"#b50\" stroke-width=\"1\"/></pattern></defs>\n\
         {svg}</svg>\n",
        group.name
    )
}

/// How much of the certain time was left at the releases.
fn histogram(findings: &Findings) -> String {
    let margins = findings.margins();
    let mut counts = [0_usize; 20];
    for (margin, _) in &margins {
        counts[(*margin as usize / 5).min(counts.len() - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    let mut svg = String::new();
    for (index, count) in counts.iter().enumerate() {
        // One in a million is to be seen, too.
        let tall = if *count == 0 { 0.0 } else { 20.0 + 120.0 * (*count as f64).ln() / most.ln().max(1.0) };
        let (x, y) = (index as f64 * 40.0, 160.0 - tall);
        writeln!(svg, "<rect x=\"{x}\" y=\"{y:.1}\" width=\"36\" height=\"{tall:.1}\" fill=\"#135\"/>").unwrap();
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"{:.1}\">{count}</text><text x=\"{x}\" y=\"176\">{}</text>",
            y - 4.0,
            index * 5
        )
        .unwrap();
    }
    format!(
        "<h2>How much of the certain time was left</h2>\n<p>At the release of each hold, in hundredths of the session \
         timeout; heights are logarithms.</p>\n<svg width=\"820\" height=\"184\">\n{svg}</svg>"
    )
}
