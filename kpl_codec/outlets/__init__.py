"""Where a watch reports its findings, each an `Outlet`. Specification: spec/10-watch.md, WCH-24 to WCH-27."""
