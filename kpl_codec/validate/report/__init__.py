"""Shows the result of a validation: a summary for the terminal and one self-contained HTML page.

scan = Scan(shard_map)                              # .scan, needs pyarrow; in the workers
for batch in checked: findings = scan.process(batch)
report = build_report(Tally.merge_all(tallies), shard_map, About(now, kpl_codec.__version__))
print(summary_text(report))                         # .summary, needs rich
Path("report.html").write_text(render_page(report)) # .page, needs Jinja2
"""
