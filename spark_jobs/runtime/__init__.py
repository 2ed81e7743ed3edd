"""The driver's side of a running application: build each operator's query, keep it inside its settings, report what it does."""
