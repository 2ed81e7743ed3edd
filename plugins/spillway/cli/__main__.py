from spillway.cli import main

main()
